output "bucket" {
  description = "Name of the bucket."
  value       = aws_s3_bucket.this.id
}

output "arn" {
  description = "ARN of the bucket."
  value       = aws_s3_bucket.this.arn
}

output "prefix" {
  description = "Prefix of Berth's keys."
  value       = var.prefix
}

output "role_policies_json" {
  description = "IAM policy documents by role: api, events, worker, operator. For roles of your own; module service attaches them by itself."
  value       = { for role, statements in local.role_statements : role => jsonencode({ Version = "2012-10-17", Statement = statements }) }
}

output "role_statements" {
  description = "The same as lists of statements, for module service."
  value       = local.role_statements
}

output "berthd_config" {
  description = "Goes into berthd's configuration under stores.NAME."
  value = merge(
    {
      region = aws_s3_bucket.this.region
      bucket = aws_s3_bucket.this.id
      prefix = var.prefix
    },
    var.accelerate ? { public_endpoint = "https://s3-accelerate.amazonaws.com" } : {},
  )
}
