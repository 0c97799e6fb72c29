variable "name" {
  description = "Name of the queue; the dead-letter queue is NAME-dlq."
  type        = string
  default     = "berth-events"

  validation {
    condition     = can(regex("^[A-Za-z0-9_-]{1,76}$", var.name))
    error_message = "At most 76 of letters, digits, _ and -. S3 cannot notify FIFO queues."
  }
}

variable "bucket" {
  description = "Name of the bucket that notifies."
  type        = string
}

variable "bucket_arn" {
  description = "ARN of the bucket; the queue takes messages of no other."
  type        = string

  validation {
    condition     = startswith(var.bucket_arn, "arn:")
    error_message = "Must be an ARN."
  }
}

variable "filter_prefix" {
  description = "Prefix of the keys to be told of: the store's."
  type        = string
  default     = "berth/"
}

variable "manage_notification" {
  description = "Write the bucket's notification configuration. A bucket has one only: turn it off where others notify too, and add the output notification to theirs."
  type        = bool
  default     = true
}

variable "eventbridge" {
  description = "Let the bucket tell EventBridge and a rule tell the queue, in place of S3 by itself: for buckets that several listen to."
  type        = bool
  default     = false
}

variable "reap_queue" {
  description = "Make a second queue, with dead letters of its own, for reap.dispatch: sqs; the worker role may use it. Its part of the configuration is the output berthd_reap_config."
  type        = bool
  default     = false
}

variable "create_key" {
  description = "Encrypt with a key made for the queue, which S3 may use. Off: SSE-SQS, or kms_key_arn. alias/aws/sqs can never work: S3 may not use it."
  type        = bool
  default     = false
}

variable "kms_key_arn" {
  description = "A key of your own for the queue. Its policy must grant s3.amazonaws.com kms:GenerateDataKey and kms:Decrypt."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:[^:]+:kms:[^:]+:[0-9]+:key/", var.kms_key_arn))
    error_message = "The ARN of a key, not of an alias."
  }
}

variable "visibility_seconds" {
  description = "For how long a message is hidden by default. berthd asks for its own (events.visibility) at each receive."
  type        = number
  default     = 60

  validation {
    condition     = var.visibility_seconds >= 30 && var.visibility_seconds <= 43200
    error_message = "30 to 43200."
  }
}

variable "retention_seconds" {
  description = "For how long a message waits to be fetched."
  type        = number
  default     = 1209600

  validation {
    condition     = var.retention_seconds >= 345600 && var.retention_seconds <= 1209600
    error_message = "4 to 14 days: an outage over a weekend must lose nothing."
  }
}

variable "max_receive_count" {
  description = "Receives after which a message moves to the dead-letter queue. berthd waits longer after each."
  type        = number
  default     = 10

  validation {
    condition     = var.max_receive_count >= 5 && var.max_receive_count <= 1000
    error_message = "5 to 1000."
  }
}

variable "tags" {
  description = "Tags of all that is made."
  type        = map(string)
  default     = {}
}
