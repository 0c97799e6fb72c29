mock_provider "aws" {
  mock_data "aws_caller_identity" {
    defaults = { account_id = "111122223333" }
  }
  mock_resource "aws_s3_bucket" {
    defaults = { arn = "arn:aws:s3:::example-uploads", id = "example-uploads", region = "eu-central-1" }
  }
  mock_resource "aws_sqs_queue" {
    defaults = {
      arn    = "arn:aws:sqs:eu-central-1:111122223333:example-uploads-events"
      id     = "https://sqs.eu-central-1.amazonaws.com/111122223333/example-uploads-events"
      region = "eu-central-1"
    }
  }
}

variables {
  bucket     = "example-uploads"
  role_names = { api = "berthd", events = "berthd", worker = "berthd", operator = "operators" }
}

run "configuration_and_policies" {
  assert {
    condition = yamldecode(output.berthd_config) == {
      stores = { main = { region = "eu-central-1", bucket = "example-uploads", prefix = "berth/" } }
      events = { queue_url = "https://sqs.eu-central-1.amazonaws.com/111122223333/example-uploads-events", region = "eu-central-1" }
    }
    error_message = "what berthd is told"
  }
  assert {
    condition     = length(aws_iam_role_policy.bucket) == 4 && length(aws_iam_role_policy.queue) == 2
    error_message = "each role gets its policies"
  }
}
