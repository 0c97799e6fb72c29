variable "name" {
  description = "Prefix of the alarms' names."
  type        = string
  default     = "berth"
}

variable "metrics_namespace" {
  description = "Output metrics_namespace of module service. Null: berthd's own metrics are not in CloudWatch; only the queues are watched here, the rest by infra/alarms/prometheus.yaml."
  type        = string
  default     = null
}

variable "queue_name" {
  description = "Output queue_name of module events. Null: no queue."
  type        = string
  default     = null
}

variable "dlq_name" {
  description = "Output dlq_name of module events. Null: no queue."
  type        = string
  default     = null
}

variable "reap_dlq_name" {
  description = "Output reap_dlq_name of module events. Null: no queue of due deletions."
  type        = string
  default     = null
}

variable "alarm_actions" {
  description = "Topics that are told when an alarm rings and when it ends."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for a in var.alarm_actions : startswith(a, "arn:")])
    error_message = "Each must be an ARN."
  }
}

variable "wake_actions" {
  description = "Topics that wake somebody: for reconcile-missing, where a file's bytes are gone. Empty: alarm_actions."
  type        = list(string)
  default     = []
}

variable "playbooks_url" {
  description = "Where infra/playbooks is read: descriptions link to its pages."
  type        = string
  default     = "infra/playbooks"
}

variable "thresholds" {
  description = "Where each alarm begins, by name; those not given keep their default."
  type        = map(number)
  default     = {}

  validation {
    condition = alltrue([for name in keys(var.thresholds) : contains([
      "tasks-failed", "tasks-old", "tasks-old-loops", "lease-takeovers", "uploads-past-deadline", "verification-failures",
      "orphans-found", "orphans-found-late", "reconcile-missing", "counter-drift", "dlq-not-empty", "dlq-not-empty-reap", "events-old",
    ], name)])
    error_message = "There is no alarm of this name."
  }
}

variable "tags" {
  description = "Tags of the alarms."
  type        = map(string)
  default     = {}
}
