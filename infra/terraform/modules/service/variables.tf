variable "name" {
  description = "Name of all that is made."
  type        = string
  default     = "berth"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,20}$", var.name))
    error_message = "2 to 21 of a-z, 0-9 and -, a letter first: load balancers' names are short."
  }
}

variable "image" {
  description = "Image of berthd, by digest or version: 111122223333.dkr.ecr.eu-central-1.amazonaws.com/berthd@sha256:…"
  type        = string

  validation {
    condition     = !endswith(var.image, ":latest") && can(regex("[:@]", var.image))
    error_message = "Name a version or a digest: a restart must not be an upgrade."
  }
}

variable "tools_image" {
  description = "Image of the one-off tasks, where it is not that of the services. To upgrade, give the new one here, apply, run migrate; then give it to image, and apply again: services that start before their migration end, and ECS gives the deployment up. Null: image."
  type        = string
  default     = null

  validation {
    condition     = var.tools_image == null ? true : !endswith(var.tools_image, ":latest") && can(regex("[:@]", var.tools_image))
    error_message = "Name a version or a digest."
  }
}

variable "vpc_id" {
  description = "VPC of the service and its database."
  type        = string
}

variable "public_subnet_ids" {
  description = "Subnets of the load balancer, in at least two zones. Private ones if it is internal."
  type        = list(string)

  validation {
    condition     = length(var.public_subnet_ids) >= 2
    error_message = "At least two, in different zones."
  }
}

variable "private_subnet_ids" {
  description = "Subnets of the tasks and the database, in at least two zones. They need a way to S3, SQS, Secrets Manager, ECR and CloudWatch: endpoints, or a NAT."
  type        = list(string)

  validation {
    condition     = length(var.private_subnet_ids) >= 2
    error_message = "At least two, in different zones."
  }
}

variable "internal" {
  description = "Keep the load balancer inside the VPC."
  type        = bool
  default     = false
}

variable "ingress_cidrs" {
  description = "Who may reach the load balancer."
  type        = list(string)

  validation {
    condition     = alltrue([for c in var.ingress_cidrs : can(cidrhost(c, 0))])
    error_message = "Each must be a CIDR block."
  }
}

variable "certificate_arn" {
  description = "ACM certificate of the API's name."
  type        = string
}

variable "ssl_policy" {
  description = "What the load balancer takes of TLS."
  type        = string
  default     = "ELBSecurityPolicy-TLS13-1-2-2021-06"
}

variable "public_url" {
  description = "Address that people reach the API by: https://uploads.example.com"
  type        = string

  validation {
    condition     = startswith(var.public_url, "https://")
    error_message = "Must begin with https://."
  }
}

variable "config" {
  description = "berthd's configuration without database, listen and secrets: stores and events from the outputs berthd_config of modules bucket and events; auth, cors, collections, outbox as in cmd/berthd/config/example.yaml."
  type        = any

  validation {
    condition     = can(var.config.stores) && can(var.config.auth)
    error_message = "Needs at least stores and auth."
  }
  validation {
    condition     = !can(var.config.stop_delay)
    error_message = "stop_delay is the default's: the tasks' stopTimeout is made for it, and the load balancer lets go of a task before it is asked to stop."
  }
  validation {
    condition     = !can(var.config.database.url) && !can(var.config.auth.hs256_secret)
    error_message = "Secrets do not belong here: everybody who may read task definitions would know them. Use secrets."
  }
}

variable "secrets" {
  description = "Further secrets by variable: BERTH_AUTH_HS256_SECRET = ARN of a secret in Secrets Manager."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name, arn in var.secrets : (startswith(name, "BERTH_") || name == "OTEL_EXPORTER_OTLP_HEADERS") && startswith(arn, "arn:")])
    error_message = "Names begin with BERTH_, or are OTEL_EXPORTER_OTLP_HEADERS; values are ARNs."
  }
}

variable "secrets_key_arn" {
  description = "KMS key that the secrets are encrypted with, if not AWS's own."
  type        = string
  default     = null
}

variable "role_statements" {
  description = "Outputs role_statements of modules bucket (one for each store) and events."
  type        = any
}

variable "outbox_arns" {
  description = "Queues and topics that config.outbox names: the worker may send there."
  type = object({
    queue = optional(string)
    topic = optional(string)
  })
  default = {}
}

variable "queue_name" {
  description = "Output queue_name of module events: the events role grows with the age of its oldest message. Null: webhooks only, and no events tasks."
  type        = string
  default     = null
}

variable "roles" {
  description = "Size and number of the tasks of each role. cpu in units (1024 is one), memory in MiB."
  type = map(object({
    cpu    = optional(number, 512)
    memory = optional(number, 1024)
    min    = optional(number, 2)
    max    = optional(number, 10)
  }))
  default = { api = {}, events = {}, worker = {} }

  validation {
    condition     = toset(keys(var.roles)) == toset(["api", "events", "worker"])
    error_message = "Exactly api, events and worker."
  }
  validation {
    condition     = alltrue([for r in values(var.roles) : r.min >= 1 && r.max >= r.min])
    error_message = "min at least 1, max at least min."
  }
}

variable "cpu_target" {
  description = "Percent of CPU that api and worker are held at."
  type        = number
  default     = 60

  validation {
    condition     = var.cpu_target >= 20 && var.cpu_target <= 90
    error_message = "20 to 90."
  }
}

variable "architecture" {
  description = "Of the image: ARM64 or X86_64."
  type        = string
  default     = "ARM64"

  validation {
    condition     = contains(["ARM64", "X86_64"], var.architecture)
    error_message = "ARM64 or X86_64."
  }
}

variable "database" {
  description = "The database. engine: aurora (Serverless v2) or rds (one instance, or two with multi_az). sslmode verify-full needs an image that holds RDS's certificates."
  type = object({
    engine              = optional(string, "aurora")
    version             = optional(string, "16")
    min_acu             = optional(number, 1)
    max_acu             = optional(number, 16)
    instances           = optional(number, 2)
    instance_class      = optional(string, "db.m7g.large")
    storage_gb          = optional(number, 100)
    multi_az            = optional(bool, true)
    backup_days         = optional(number, 14)
    deletion_protection = optional(bool, true)
    kms_key_arn         = optional(string)
    sslmode             = optional(string, "require")
  })
  default = {}

  validation {
    condition     = contains(["aurora", "rds"], var.database.engine)
    error_message = "engine must be aurora or rds."
  }
  validation {
    condition     = contains(["require", "verify-ca", "verify-full"], var.database.sslmode)
    error_message = "sslmode must be require, verify-ca or verify-full."
  }
  validation {
    condition     = var.database.backup_days >= 1 && var.database.backup_days <= 35
    error_message = "backup_days must be 1 to 35."
  }
}

variable "metrics_image" {
  description = "Image of the CloudWatch agent that runs beside berthd and hands its Prometheus metrics to CloudWatch, for module alarms. Null: none; scrape /metrics by other means."
  type        = string
  default     = null
}

variable "tracing" {
  description = "Where traces go: an OTLP receiver over HTTP that the tasks reach, and how many of the traces that begin in berthd are kept. What a receiver wants for a key belongs into secrets, as OTEL_EXPORTER_OTLP_HEADERS. Null: no traces, unless config.telemetry says so."
  type = object({
    otlp_endpoint = string
    sample_ratio  = optional(number, 1)
  })
  default = null

  validation {
    condition     = var.tracing == null ? true : can(regex("^https?://[^/@:]+(:[0-9]+)?(/.*)?$", var.tracing.otlp_endpoint))
    error_message = "otlp_endpoint must be http(s)://host[:port][/path]."
  }
  validation {
    condition     = var.tracing == null ? true : var.tracing.sample_ratio >= 0 && var.tracing.sample_ratio <= 1
    error_message = "sample_ratio must be from 0 to 1."
  }
}

variable "log_retention_days" {
  description = "For how long logs are kept."
  type        = number
  default     = 90
}

variable "log_key_arn" {
  description = "KMS key that logs are encrypted with. Null: AWS's own."
  type        = string
  default     = null
}

variable "lb_log_bucket" {
  description = "Bucket that takes the load balancer's access logs. Null: none. Request lines hold no tokens but those of /uppy/{grant}/ paths."
  type        = string
  default     = null
}

variable "deletion_protection" {
  description = "Protect the load balancer from being destroyed."
  type        = bool
  default     = true
}

variable "tags" {
  description = "Tags of all that is made."
  type        = map(string)
  default     = {}
}
