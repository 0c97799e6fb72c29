output "queue_url" {
  description = "URL of the queue: events.queue_url."
  value       = aws_sqs_queue.this.id
}

output "queue_arn" {
  description = "ARN of the queue."
  value       = aws_sqs_queue.this.arn
}

output "queue_name" {
  description = "Name of the queue, as CloudWatch has it."
  value       = aws_sqs_queue.this.name
}

output "dlq_name" {
  description = "Name of the dead-letter queue, as CloudWatch has it."
  value       = aws_sqs_queue.dlq.name
}

output "dlq_arn" {
  description = "ARN of the dead-letter queue."
  value       = aws_sqs_queue.dlq.arn
}

output "reap_queue_name" {
  description = "Name of the queue of due deletions, as CloudWatch has it. Null without reap_queue."
  value       = one(aws_sqs_queue.reap[*].name)
}

output "reap_queue_arn" {
  description = "ARN of the queue of due deletions. Null without reap_queue."
  value       = one(aws_sqs_queue.reap[*].arn)
}

output "reap_dlq_name" {
  description = "Name of its dead-letter queue, as CloudWatch has it. Null without reap_queue."
  value       = one(aws_sqs_queue.reap_dlq[*].name)
}

output "role_policies_json" {
  description = "IAM policy documents by role, for the roles that touch a queue: events, operator, and worker with reap_queue."
  value       = { for role, statements in local.role_statements : role => jsonencode({ Version = "2012-10-17", Statement = statements }) if length(statements) > 0 }
}

output "role_statements" {
  description = "The same as lists of statements, for module service."
  value       = local.role_statements
}

output "notification" {
  description = "For manage_notification = false: the queue block of your own aws_s3_bucket_notification."
  value       = { id = "berth", queue_arn = aws_sqs_queue.this.arn, events = ["s3:ObjectCreated:*"], filter_prefix = var.filter_prefix }
}

output "berthd_config" {
  description = "Goes into berthd's configuration under events."
  value       = { queue_url = aws_sqs_queue.this.id, region = aws_sqs_queue.this.region }
}

output "berthd_reap_config" {
  description = "Goes into berthd's configuration under reap; empty without reap_queue."
  value       = { for key, value in { dispatch = "sqs", queue_url = one(aws_sqs_queue.reap[*].id) } : key => value if var.reap_queue }
}
