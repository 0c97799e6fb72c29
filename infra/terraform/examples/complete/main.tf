# Everything: bucket, queue, service, alarms. Give it a network, a certificate and an
# image; then run the migrations and start the services (output next_steps), and point
# the API's name at the load balancer.

terraform {
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.0"
    }
  }
}

variable "region" {
  description = "Where everything is."
  type        = string
  default     = "eu-central-1"
}

variable "bucket" {
  description = "Name of the bucket."
  type        = string
}

variable "image" {
  description = "Image of berthd, built from infra/Dockerfile and pushed to your registry."
  type        = string
}

variable "tools_image" {
  description = "Image of migrate, doctor and reconcile: the next release's, to migrate before image is changed. Null: image."
  type        = string
  default     = null
}

variable "metrics_image" {
  description = "Image of the CloudWatch agent, of a version of your choice. Null: no metrics in CloudWatch."
  type        = string
  default     = null
}

variable "vpc_id" {
  description = "VPC."
  type        = string
}

variable "public_subnet_ids" {
  description = "Subnets of the load balancer."
  type        = list(string)
}

variable "private_subnet_ids" {
  description = "Subnets of tasks and database."
  type        = list(string)
}

variable "certificate_arn" {
  description = "ACM certificate of the name in public_url."
  type        = string
}

variable "public_url" {
  description = "The API's address: https://uploads.example.com"
  type        = string
}

variable "jwks_url" {
  description = "Keys of whoever signs your users' tokens."
  type        = string
}

variable "app_origins" {
  description = "Origins of the pages that upload."
  type        = list(string)
}

variable "alarm_email" {
  description = "Who is told of alarms. Empty: nobody."
  type        = string
  default     = ""
}

provider "aws" {
  region = var.region

  default_tags {
    tags = { Service = "berth" }
  }
}

resource "aws_kms_key" "objects" {
  description         = "Objects of ${var.bucket}"
  enable_key_rotation = true
}

module "bucket" {
  source = "../../modules/bucket"

  bucket               = var.bucket
  kms_key_arn          = aws_kms_key.objects.arn
  cors_allowed_origins = concat(var.app_origins, [var.public_url])
}

module "events" {
  source = "../../modules/events"

  name          = "berth-events"
  bucket        = module.bucket.bucket
  bucket_arn    = module.bucket.arn
  filter_prefix = module.bucket.prefix
  create_key    = true
}

module "service" {
  source = "../../modules/service"

  image              = var.image
  tools_image        = var.tools_image
  metrics_image      = var.metrics_image
  vpc_id             = var.vpc_id
  public_subnet_ids  = var.public_subnet_ids
  private_subnet_ids = var.private_subnet_ids
  ingress_cidrs      = ["0.0.0.0/0"]
  certificate_arn    = var.certificate_arn
  public_url         = var.public_url
  queue_name         = module.events.queue_name
  role_statements    = [module.bucket.role_statements, module.events.role_statements]

  config = {
    stores = { main = module.bucket.berthd_config }
    events = module.events.berthd_config
    auth   = { jwks_url = var.jwks_url }
    cors   = { allowed_origins = var.app_origins }
    collections = {
      default = { deadline = "24h", hard_deadline = "7d" }
      avatars = { content_types = ["image/*"], max_size = "5MiB", max_files = 10 }
    }
  }
}

# CloudWatch may not use alias/aws/sns: its alarms would ring unheard.
resource "aws_kms_key" "alarms" {
  description         = "Alarms of Berth"
  enable_key_rotation = true

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "Account"
        Effect    = "Allow"
        Principal = { AWS = "arn:${data.aws_partition.this.partition}:iam::${data.aws_caller_identity.this.account_id}:root" }
        Action    = "kms:*"
        Resource  = "*"
      },
      {
        Sid       = "Alarms"
        Effect    = "Allow"
        Principal = { Service = "cloudwatch.amazonaws.com" }
        Action    = ["kms:GenerateDataKey*", "kms:Decrypt"]
        Resource  = "*"
        Condition = { StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.this.account_id } }
      },
    ]
  })
}

data "aws_caller_identity" "this" {}

data "aws_partition" "this" {}

resource "aws_sns_topic" "alarms" {
  name              = "berth-alarms"
  kms_master_key_id = aws_kms_key.alarms.arn
}

resource "aws_sns_topic_subscription" "alarms" {
  count = var.alarm_email == "" ? 0 : 1

  topic_arn = aws_sns_topic.alarms.arn
  protocol  = "email"
  endpoint  = var.alarm_email
}

module "alarms" {
  source = "../../modules/alarms"

  metrics_namespace = module.service.metrics_namespace
  queue_name        = module.events.queue_name
  dlq_name          = module.events.dlq_name
  alarm_actions     = [aws_sns_topic.alarms.arn]
}

output "lb_dns_name" {
  description = "Point the API's name here."
  value       = module.service.lb_dns_name
}

output "next_steps" {
  description = "Run migrate, start the services, run doctor. For a new image: give it to tools_image, apply, run migrate, then give it to image."
  value       = "${module.service.run_tool}\n${module.service.start_services}"
}
