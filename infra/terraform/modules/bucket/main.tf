# One bucket for berthd: versions on, closed to the public, encrypted, TLS only, with the
# CORS that browsers need and the lifecycle that is the net below Berth's own cleaning.

#tfsec:ignore:aws-s3-enable-bucket-logging -- log_bucket turns it on, in a resource of its own
resource "aws_s3_bucket" "this" {
  bucket        = var.bucket
  force_destroy = var.force_destroy
  tags          = var.tags
}

resource "aws_s3_bucket_versioning" "this" {
  bucket = aws_s3_bucket.this.id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_ownership_controls" "this" {
  bucket = aws_s3_bucket.this.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_public_access_block" "this" {
  bucket = aws_s3_bucket.this.id

  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_server_side_encryption_configuration" "this" {
  bucket = aws_s3_bucket.this.id

  rule {
    bucket_key_enabled = var.kms_key_arn != null

    apply_server_side_encryption_by_default {
      sse_algorithm     = var.kms_key_arn == null ? "AES256" : "aws:kms"
      kms_master_key_id = var.kms_key_arn
    }
  }
}

resource "aws_s3_bucket_cors_configuration" "this" {
  count = length(var.cors_allowed_origins) > 0 ? 1 : 0

  bucket = aws_s3_bucket.this.id

  cors_rule {
    id              = "berth"
    allowed_origins = var.cors_allowed_origins
    allowed_methods = ["PUT", "POST", "GET", "HEAD"]
    allowed_headers = ["content-type", "content-md5", "x-amz-*", "if-none-match"]
    # Each by its name: not every store and browser takes a pattern here.
    expose_headers = [
      "ETag",
      "x-amz-version-id",
      "x-amz-checksum-type",
      "x-amz-checksum-sha256",
      "x-amz-checksum-crc64nvme",
      "x-amz-checksum-crc32c",
      "x-amz-checksum-crc32",
    ]
    max_age_seconds = var.cors_max_age_seconds
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "this" {
  bucket = aws_s3_bucket.this.id

  rule {
    id     = "abort-incomplete-uploads"
    status = "Enabled"

    filter {
      prefix = var.prefix
    }

    abort_incomplete_multipart_upload {
      days_after_initiation = var.abort_incomplete_days
    }
  }

  # Never current versions: files are deleted through Berth.
  rule {
    id     = "expire-noncurrent-versions"
    status = "Enabled"

    filter {
      prefix = var.prefix
    }

    noncurrent_version_expiration {
      noncurrent_days = var.noncurrent_days
    }

    expiration {
      expired_object_delete_marker = true
    }
  }

  # S3 refuses rules about noncurrent versions before it knows versions.
  depends_on = [aws_s3_bucket_versioning.this]
}

resource "aws_s3_bucket_policy" "this" {
  bucket = aws_s3_bucket.this.id
  policy = local.bucket_policy

  depends_on = [aws_s3_bucket_public_access_block.this]
}

resource "aws_s3_bucket_accelerate_configuration" "this" {
  count = var.accelerate ? 1 : 0

  bucket = aws_s3_bucket.this.id
  status = "Enabled"
}

resource "aws_s3_bucket_logging" "this" {
  count = var.log_bucket == null ? 0 : 1

  bucket        = aws_s3_bucket.this.id
  target_bucket = var.log_bucket
  target_prefix = "${var.bucket}/"
}

resource "aws_s3_bucket_inventory" "this" {
  count = var.inventory == null ? 0 : 1

  bucket                   = aws_s3_bucket.this.id
  name                     = "berth"
  included_object_versions = "All" # reconcile is about versions
  optional_fields          = ["Size", "LastModifiedDate", "ETag"]

  filter {
    prefix = var.prefix
  }

  schedule {
    frequency = "Daily"
  }

  destination {
    bucket {
      bucket_arn = var.inventory.destination_bucket_arn
      prefix     = var.inventory.prefix
      format     = var.inventory.format

      encryption {
        sse_s3 {}
      }
    }
  }
}
