# A bucket and a queue for a berthd that runs elsewhere: on Kubernetes, on machines of
# your own. Attach policies to its roles, and paste berthd_config into its configuration.

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
  description = "Where the bucket is."
  type        = string
  default     = "eu-central-1"
}

variable "bucket" {
  description = "Name of the bucket."
  type        = string
}

variable "cors_allowed_origins" {
  description = "Origins of your pages."
  type        = list(string)
  default     = []
}

variable "role_names" {
  description = "IAM roles by berthd's role: api, events, worker, operator. All may be the same one where one process does all."
  type        = map(string)
  default     = {}

  validation {
    condition     = length(setsubtract(keys(var.role_names), ["api", "events", "worker", "operator"])) == 0
    error_message = "Roles are api, events, worker and operator."
  }
}

provider "aws" {
  region = var.region
}

module "bucket" {
  source = "../../modules/bucket"

  bucket               = var.bucket
  cors_allowed_origins = var.cors_allowed_origins
}

module "events" {
  source = "../../modules/events"

  name          = "${var.bucket}-events"
  bucket        = module.bucket.bucket
  bucket_arn    = module.bucket.arn
  filter_prefix = module.bucket.prefix
}

resource "aws_iam_role_policy" "bucket" {
  for_each = var.role_names

  name   = "berth-${each.key}-bucket"
  role   = each.value
  policy = module.bucket.role_policies_json[each.key]
}

resource "aws_iam_role_policy" "queue" {
  for_each = { for role, name in var.role_names : role => name if contains(["events", "operator"], role) }

  name   = "berth-${each.key}-queue"
  role   = each.value
  policy = module.events.role_policies_json[each.key]
}

output "berthd_config" {
  description = "For berth.yaml."
  value = yamlencode({
    stores = { main = module.bucket.berthd_config }
    events = module.events.berthd_config
  })
}
