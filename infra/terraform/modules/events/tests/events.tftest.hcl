mock_provider "aws" {
  mock_data "aws_caller_identity" {
    defaults = { account_id = "111122223333" }
  }
  mock_resource "aws_sqs_queue" {
    defaults = {
      arn = "arn:aws:sqs:eu-central-1:111122223333:berth-events"
      id  = "https://sqs.eu-central-1.amazonaws.com/111122223333/berth-events"
    }
  }
  mock_resource "aws_kms_key" {
    defaults = { arn = "arn:aws:kms:eu-central-1:111122223333:key/1" }
  }
  mock_resource "aws_cloudwatch_event_rule" {
    defaults = { arn = "arn:aws:events:eu-central-1:111122223333:rule/berth-events" }
  }
}

variables {
  bucket     = "example-uploads"
  bucket_arn = "arn:aws:s3:::example-uploads"
}

run "defaults" {
  assert {
    condition     = one([for s in jsondecode(aws_sqs_queue_policy.this.policy).Statement : s.Condition if s.Sid == "Sender"]) == { ArnLike = { "aws:SourceArn" = "arn:aws:s3:::example-uploads" }, StringEquals = { "aws:SourceAccount" = "111122223333" } }
    error_message = "only this bucket, and only of this account"
  }
  assert {
    condition     = one([for s in jsondecode(aws_sqs_queue_policy.this.policy).Statement : s.Principal.Service if s.Sid == "Sender"]) == "s3.amazonaws.com"
    error_message = "S3 sends"
  }
  assert {
    condition     = one(aws_s3_bucket_notification.this[0].queue).events == toset(["s3:ObjectCreated:*"]) && one(aws_s3_bucket_notification.this[0].queue).filter_prefix == "berth/"
    error_message = "all that is created under the prefix"
  }
  assert {
    condition     = aws_sqs_queue.this.sqs_managed_sse_enabled && aws_sqs_queue.this.kms_master_key_id == null
    error_message = "SSE-SQS by default"
  }
  assert {
    condition     = jsondecode(aws_sqs_queue.this.redrive_policy).maxReceiveCount == 10
    error_message = "poison goes away"
  }
  assert {
    condition     = jsondecode(aws_sqs_queue_redrive_allow_policy.dlq.redrive_allow_policy).redrivePermission == "byQueue"
    error_message = "the dead-letter queue is of this queue only"
  }
  assert {
    condition     = toset(keys(output.role_policies_json)) == toset(["events", "operator"])
    error_message = "no other role touches the queue"
  }
  assert {
    condition     = length(aws_cloudwatch_event_rule.this) == 0
    error_message = "no EventBridge unless asked for"
  }
}

run "with_a_key" {
  variables {
    create_key = true
  }

  assert {
    condition     = one([for s in jsondecode(aws_kms_key.this[0].policy).Statement : s.Action if s.Sid == "Sender"]) == ["kms:GenerateDataKey", "kms:Decrypt"]
    error_message = "S3 needs both"
  }
  assert {
    condition     = aws_sqs_queue.this.kms_master_key_id == "arn:aws:kms:eu-central-1:111122223333:key/1"
    error_message = "the queue uses the key"
  }
  assert {
    condition     = [for s in jsondecode(output.role_policies_json["events"]).Statement : s.Action if s.Sid == "QueueKey"] == [["kms:Decrypt"]]
    error_message = "the consumer decrypts"
  }
}

run "by_eventbridge" {
  variables {
    eventbridge = true
  }

  assert {
    condition     = aws_s3_bucket_notification.this[0].eventbridge && length(aws_s3_bucket_notification.this[0].queue) == 0
    error_message = "the bucket tells EventBridge, not the queue too"
  }
  assert {
    condition     = one([for s in jsondecode(aws_sqs_queue_policy.this.policy).Statement : s.Condition.ArnLike["aws:SourceArn"] if s.Sid == "Sender"]) == "arn:aws:events:eu-central-1:111122223333:rule/berth-events"
    error_message = "only the rule sends"
  }
  assert {
    condition     = jsondecode(aws_cloudwatch_event_rule.this[0].event_pattern).detail.object.key == [{ prefix = "berth/" }]
    error_message = "only the prefix"
  }
}

run "without_a_reap_queue" {
  assert {
    condition     = length(aws_sqs_queue.reap) == 0 && output.reap_queue_name == null && output.berthd_reap_config == {}
    error_message = "no second queue unless asked for"
  }
}

run "with_a_reap_queue" {
  variables {
    reap_queue = true
    create_key = true
  }

  assert {
    condition     = jsondecode(aws_sqs_queue.reap[0].redrive_policy).maxReceiveCount == 10 && aws_sqs_queue.reap[0].kms_master_key_id == "arn:aws:kms:eu-central-1:111122223333:key/1"
    error_message = "poison goes away; the queue uses the key"
  }
  assert {
    condition     = toset(keys(output.role_policies_json)) == toset(["events", "operator", "worker"])
    error_message = "the worker uses the queue, the API does not"
  }
  assert {
    condition     = toset([for s in jsondecode(output.role_policies_json["worker"]).Statement : s.Sid]) == toset(["ReapQueue", "QueueKey"])
    error_message = "the worker touches this queue only"
  }
  assert {
    condition     = [for s in jsondecode(output.role_policies_json["worker"]).Statement : s.Action if s.Sid == "QueueKey"] == [["kms:Decrypt", "kms:GenerateDataKey"]]
    error_message = "the worker sends and receives"
  }
  assert {
    condition     = [for s in jsondecode(output.role_policies_json["events"]).Statement : s.Sid if s.Sid == "ReapQueue"] == []
    error_message = "the consumer of notifications has nothing to do there"
  }
  assert {
    condition     = output.berthd_reap_config.dispatch == "sqs"
    error_message = "the output is the configuration"
  }
}

run "refuses_an_alias" {
  command = plan

  variables {
    kms_key_arn = "alias/aws/sqs"
  }

  expect_failures = [var.kms_key_arn]
}

run "refuses_a_short_retention" {
  command = plan

  variables {
    retention_seconds = 60
  }

  expect_failures = [var.retention_seconds]
}
