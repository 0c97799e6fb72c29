mock_provider "aws" {
  mock_data "aws_caller_identity" {
    defaults = { account_id = "111122223333" }
  }
  mock_data "aws_region" {
    defaults = { region = "eu-central-1" }
  }
  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
  mock_data "aws_secretsmanager_random_password" {
    defaults = { random_password = "not-a-real-password" }
  }
  mock_resource "aws_s3_bucket" {
    defaults = { arn = "arn:aws:s3:::example-uploads", id = "example-uploads", region = "eu-central-1" }
  }
  mock_resource "aws_sqs_queue" {
    defaults = {
      arn    = "arn:aws:sqs:eu-central-1:111122223333:berth-events"
      id     = "https://sqs.eu-central-1.amazonaws.com/111122223333/berth-events"
      region = "eu-central-1"
    }
  }
  mock_resource "aws_kms_key" {
    defaults = { arn = "arn:aws:kms:eu-central-1:111122223333:key/1" }
  }
  mock_resource "aws_sns_topic" {
    defaults = { arn = "arn:aws:sns:eu-central-1:111122223333:berth-alarms" }
  }
  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::111122223333:role/berth" }
  }
  mock_resource "aws_lb" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-central-1:111122223333:loadbalancer/app/berth/1" }
  }
  mock_resource "aws_lb_target_group" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-central-1:111122223333:targetgroup/berth/1" }
  }
  mock_resource "aws_lb_listener" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-central-1:111122223333:listener/app/berth/1/2" }
  }
  mock_resource "aws_secretsmanager_secret" {
    defaults = { arn = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:berth-database-url" }
  }
  mock_resource "aws_cloudwatch_log_group" {
    defaults = { arn = "arn:aws:logs:eu-central-1:111122223333:log-group:berth" }
  }
  mock_resource "aws_appautoscaling_policy" {
    defaults = { arn = "arn:aws:autoscaling:eu-central-1:111122223333:scalingPolicy:1" }
  }
}

variables {
  bucket             = "example-uploads"
  image              = "111122223333.dkr.ecr.eu-central-1.amazonaws.com/berthd:1.0.0"
  metrics_image      = "public.ecr.aws/cloudwatch-agent/cloudwatch-agent:1"
  vpc_id             = "vpc-1"
  public_subnet_ids  = ["subnet-1", "subnet-2"]
  private_subnet_ids = ["subnet-3", "subnet-4"]
  certificate_arn    = "arn:aws:acm:eu-central-1:111122223333:certificate/1"
  public_url         = "https://uploads.example.com"
  jwks_url           = "https://id.example.com/.well-known/jwks.json"
  app_origins        = ["https://app.example.com"]
}

run "joins_the_modules" {
  assert {
    condition     = strcontains(output.next_steps, "berth-TOOL")
    error_message = "how to migrate"
  }
  assert {
    condition     = length(module.alarms.alarm_names) == 12
    error_message = "all alarms"
  }
}
