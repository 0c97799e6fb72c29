mock_provider "aws" {
  mock_resource "aws_s3_bucket" {
    defaults = {
      arn    = "arn:aws:s3:::example-uploads"
      id     = "example-uploads"
      region = "eu-central-1"
    }
  }
  mock_resource "aws_iam_role" {
    defaults = {
      arn = "arn:aws:iam::111122223333:role/berth-replication"
    }
  }
}

variables {
  bucket = "example-uploads"
}

run "defaults" {
  assert {
    condition     = aws_s3_bucket_versioning.this.versioning_configuration[0].status == "Enabled"
    error_message = "versions must be on"
  }
  assert {
    condition = alltrue([
      aws_s3_bucket_public_access_block.this.block_public_acls,
      aws_s3_bucket_public_access_block.this.block_public_policy,
      aws_s3_bucket_public_access_block.this.ignore_public_acls,
      aws_s3_bucket_public_access_block.this.restrict_public_buckets,
    ])
    error_message = "the public must be kept out"
  }
  assert {
    condition     = aws_s3_bucket_ownership_controls.this.rule[0].object_ownership == "BucketOwnerEnforced"
    error_message = "ACLs must be off"
  }
  assert {
    condition     = one(aws_s3_bucket_server_side_encryption_configuration.this.rule).apply_server_side_encryption_by_default[0].sse_algorithm == "AES256"
    error_message = "SSE-S3 without a key"
  }
  assert {
    condition     = length(aws_s3_bucket_cors_configuration.this) == 0
    error_message = "no CORS without pages"
  }
  assert {
    condition     = alltrue([for r in aws_s3_bucket_lifecycle_configuration.this.rule : r.status == "Enabled" && one(r.filter).prefix == "berth/"])
    error_message = "the rules must be on, and for the prefix"
  }
  assert {
    condition     = length([for r in aws_s3_bucket_lifecycle_configuration.this.rule : r if length(r.abort_incomplete_multipart_upload) == 1]) == 1
    error_message = "one rule aborts"
  }
  assert {
    condition     = alltrue([for r in aws_s3_bucket_lifecycle_configuration.this.rule : alltrue([for e in r.expiration : e.expired_object_delete_marker && coalesce(e.days, 0) == 0])])
    error_message = "no rule may delete current versions"
  }
  assert {
    condition     = toset([for s in jsondecode(aws_s3_bucket_policy.this.policy).Statement : s.Sid]) == toset(["TLSOnly", "NoOldTLS", "NoOldSignatures"])
    error_message = "the bucket's policy lacks a statement"
  }
  assert {
    condition     = [for s in jsondecode(aws_s3_bucket_policy.this.policy).Statement : s.Condition.NumericGreaterThan["s3:signatureAge"] if s.Sid == "NoOldSignatures"] == ["86400000"]
    error_message = "the age is in milliseconds"
  }
  assert {
    condition     = toset(keys(output.role_policies_json)) == toset(["api", "events", "worker", "operator"])
    error_message = "a policy for each role"
  }
  assert {
    condition     = alltrue([for p in values(output.role_policies_json) : alltrue([for s in jsondecode(p).Statement : s.Sid != "Key"])])
    error_message = "no key, no rights on one"
  }
  assert {
    condition     = [for s in jsondecode(output.role_policies_json["api"]).Statement : s.Resource if s.Sid == "Objects"] == [["arn:aws:s3:::example-uploads/berth/*"]]
    error_message = "objects under the prefix only"
  }
  assert {
    condition     = output.berthd_config == { region = "eu-central-1", bucket = "example-uploads", prefix = "berth/" }
    error_message = "what berthd is told"
  }
}

run "with_everything" {
  variables {
    prefix               = "up/"
    kms_key_arn          = "arn:aws:kms:eu-central-1:111122223333:key/1"
    cors_allowed_origins = ["https://app.example.com"]
    accelerate           = true
    log_bucket           = "example-logs"
    replication          = { destination_bucket_arn = "arn:aws:s3:::example-copy", destination_kms_key_arn = "arn:aws:kms:eu-west-1:111122223333:key/2" }
    inventory            = { destination_bucket_arn = "arn:aws:s3:::example-inventory" }
  }

  assert {
    condition     = contains(one(aws_s3_bucket_cors_configuration.this[0].cors_rule).expose_headers, "ETag")
    error_message = "ETag must be readable"
  }
  assert {
    condition     = one(aws_s3_bucket_server_side_encryption_configuration.this.rule).bucket_key_enabled
    error_message = "a bucket key saves calls to KMS"
  }
  assert {
    condition     = [for s in jsondecode(output.role_policies_json["events"]).Statement : s.Action if s.Sid == "Key"] == [["kms:Decrypt"]]
    error_message = "events only reads"
  }
  assert {
    condition     = [for s in jsondecode(output.role_policies_json["operator"]).Statement : s.Resource if s.Sid == "Inventory"] == [["arn:aws:s3:::example-inventory/inventory/*"]]
    error_message = "the operator reads the inventory"
  }
  assert {
    condition     = one(aws_s3_bucket_replication_configuration.this[0].rule).filter[0].prefix == "up/"
    error_message = "copies what is under the prefix"
  }
  assert {
    condition     = aws_s3_bucket_inventory.this[0].included_object_versions == "All"
    error_message = "reconcile is about versions"
  }
  assert {
    condition     = output.berthd_config.public_endpoint == "https://s3-accelerate.amazonaws.com"
    error_message = "clients must be told of the accelerated address"
  }
}

run "refuses_a_dotted_name" {
  command = plan

  variables {
    bucket = "my.uploads"
  }

  expect_failures = [var.bucket]
}

run "refuses_a_prefix_without_its_slash" {
  command = plan

  variables {
    prefix = "berth"
  }

  expect_failures = [var.prefix]
}

run "refuses_an_origin_with_a_path" {
  command = plan

  variables {
    cors_allowed_origins = ["https://app.example.com/upload"]
  }

  expect_failures = [var.cors_allowed_origins]
}

run "refuses_orc" {
  command = plan

  variables {
    inventory = { destination_bucket_arn = "arn:aws:s3:::i", format = "ORC" }
  }

  expect_failures = [var.inventory]
}
