variable "bucket" {
  description = "Name of the bucket."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$", var.bucket))
    error_message = "3 to 63 of a-z, 0-9 and -; dots are left out since they break TLS for https://bucket.host addresses."
  }
}

variable "prefix" {
  description = "Prefix of all of Berth's keys (stores.*.prefix). Berth's roles and the lifecycle rules reach no further."
  type        = string
  default     = "berth/"

  validation {
    condition     = can(regex("^([A-Za-z0-9._-]+/)*$", var.prefix))
    error_message = "Empty, or letters, digits, . _ - and /, with a / at its end: what berthd's configuration takes."
  }
}

variable "cors_allowed_origins" {
  description = "Origins of the pages that send and read files, such as https://app.example.com. Empty: no browser can."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for o in var.cors_allowed_origins : can(regex("^(\\*|https?://[^/ ]+)$", o))])
    error_message = "Each must be a scheme and a host without a path, or *."
  }
}

variable "cors_max_age_seconds" {
  description = "For how long a browser may keep the answer to a preflight. There is one for each part's URL."
  type        = number
  default     = 3600

  validation {
    condition     = var.cors_max_age_seconds >= 0 && var.cors_max_age_seconds <= 86400
    error_message = "0 to 86400."
  }
}

variable "abort_incomplete_days" {
  description = "Days after which S3 aborts a multipart upload. More than the longest hard_deadline (7 days by default): it is the net below Berth's own cleaning, not the cleaning."
  type        = number
  default     = 8

  validation {
    condition     = var.abort_incomplete_days >= 1 && floor(var.abort_incomplete_days) == var.abort_incomplete_days
    error_message = "Whole days, at least 1."
  }
}

variable "noncurrent_days" {
  description = "Days after which S3 removes a version that another has replaced. Berth replaces none; this is for what others do."
  type        = number
  default     = 30

  validation {
    condition     = var.noncurrent_days >= 1 && floor(var.noncurrent_days) == var.noncurrent_days
    error_message = "Whole days, at least 1."
  }
}

variable "kms_key_arn" {
  description = "Key that objects are encrypted with (SSE-KMS, with a bucket key). Null: SSE-S3."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:[^:]+:kms:", var.kms_key_arn))
    error_message = "An ARN of a key: the roles' policies name it."
  }
}

variable "signature_max_age_seconds" {
  description = "No signed request to an object older than this is taken (s3:signatureAge), whatever expiry was signed into its URL. At least the longest url_expiry of the collections; a webhook step's read URL lives 6 hours."
  type        = number
  default     = 86400

  validation {
    condition     = var.signature_max_age_seconds >= 60 && var.signature_max_age_seconds <= 604800
    error_message = "60 to 604800: no presigned URL lives longer than 7 days."
  }
}

variable "accelerate" {
  description = "Turn Transfer Acceleration on, for clients far away. Set stores.*.public_endpoint to https://s3-accelerate.amazonaws.com then."
  type        = bool
  default     = false
}

variable "replication" {
  description = "Copies all under the prefix to a bucket that has versions, usually in another region, below Berth's own replicas."
  type = object({
    destination_bucket_arn  = string
    destination_kms_key_arn = optional(string)
    storage_class           = optional(string, "STANDARD_IA")
  })
  default = null

  validation {
    condition     = var.replication == null || try(startswith(var.replication.destination_bucket_arn, "arn:"), false)
    error_message = "destination_bucket_arn must be an ARN."
  }
}

variable "inventory" {
  description = "Writes a daily S3 Inventory of all versions under the prefix, for berthd reconcile --inventory. The destination's policy must let S3 write."
  type = object({
    destination_bucket_arn = string
    prefix                 = optional(string, "inventory")
    format                 = optional(string, "Parquet")
  })
  default = null

  validation {
    condition     = var.inventory == null || try(contains(["CSV", "Parquet"], var.inventory.format), false)
    error_message = "format must be CSV or Parquet: reconcile reads no ORC."
  }
}

variable "log_bucket" {
  description = "Name of a bucket that takes the server access logs. Null: none."
  type        = string
  default     = null
}

variable "force_destroy" {
  description = "Let terraform destroy remove a bucket that holds files."
  type        = bool
  default     = false
}

variable "tags" {
  description = "Tags of all that is made."
  type        = map(string)
  default     = {}
}
