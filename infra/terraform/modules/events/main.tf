# The way of S3's word: bucket → queue, and a dead-letter queue behind it.

data "aws_caller_identity" "this" {}

locals {
  account   = data.aws_caller_identity.this.account_id
  partition = split(":", var.bucket_arn)[1]
  key_arn   = var.create_key ? aws_kms_key.this[0].arn : var.kms_key_arn
  sender    = var.eventbridge ? "events.amazonaws.com" : "s3.amazonaws.com"
  source    = var.eventbridge ? one(aws_cloudwatch_event_rule.this[*].arn) : var.bucket_arn
}

resource "aws_kms_key" "this" {
  count = var.create_key ? 1 : 0

  description         = "Messages of ${var.name}"
  enable_key_rotation = true
  tags                = var.tags

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "Account"
        Effect    = "Allow"
        Principal = { AWS = "arn:${local.partition}:iam::${local.account}:root" }
        Action    = "kms:*"
        Resource  = "*"
      },
      {
        # Without these S3 drops its notifications, and says nothing.
        Sid       = "Sender"
        Effect    = "Allow"
        Principal = { Service = local.sender }
        Action    = ["kms:GenerateDataKey", "kms:Decrypt"]
        Resource  = "*"
        # EventBridge names no account to the key; the queue's policy names its rule.
        Condition = { for test in var.eventbridge ? [] : ["StringEquals"] : test => { "aws:SourceAccount" = local.account } }
      },
    ]
  })
}

resource "aws_sqs_queue" "dlq" {
  name                       = "${var.name}-dlq"
  message_retention_seconds  = 1209600
  visibility_timeout_seconds = var.visibility_seconds
  sqs_managed_sse_enabled    = local.key_arn == null ? true : null
  kms_master_key_id          = local.key_arn
  tags                       = var.tags
}

resource "aws_sqs_queue" "this" {
  name                       = var.name
  message_retention_seconds  = var.retention_seconds
  visibility_timeout_seconds = var.visibility_seconds
  receive_wait_time_seconds  = 20
  sqs_managed_sse_enabled    = local.key_arn == null ? true : null
  kms_master_key_id          = local.key_arn
  tags                       = var.tags

  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dlq.arn
    maxReceiveCount     = var.max_receive_count
  })
}

resource "aws_sqs_queue_redrive_allow_policy" "dlq" {
  queue_url = aws_sqs_queue.dlq.id

  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [aws_sqs_queue.this.arn]
  })
}

resource "aws_sqs_queue_policy" "this" {
  queue_url = aws_sqs_queue.this.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "Sender"
        Effect    = "Allow"
        Principal = { Service = local.sender }
        Action    = "sqs:SendMessage"
        Resource  = aws_sqs_queue.this.arn
        Condition = merge(
          { ArnLike = { "aws:SourceArn" = local.source } },
          # A bucket's ARN names no account; a rule's does.
          { for test in var.eventbridge ? [] : ["StringEquals"] : test => { "aws:SourceAccount" = local.account } },
        )
      },
      {
        Sid       = "TLSOnly"
        Effect    = "Deny"
        Principal = "*"
        Action    = "sqs:*"
        Resource  = aws_sqs_queue.this.arn
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
    ]
  })
}

resource "aws_s3_bucket_notification" "this" {
  count = var.manage_notification ? 1 : 0

  bucket      = var.bucket
  eventbridge = var.eventbridge

  dynamic "queue" {
    for_each = var.eventbridge ? [] : [1]

    content {
      id            = "berth"
      queue_arn     = aws_sqs_queue.this.arn
      events        = ["s3:ObjectCreated:*"]
      filter_prefix = var.filter_prefix
    }
  }

  # S3 tries the queue when it is told of it.
  depends_on = [aws_sqs_queue_policy.this]
}

resource "aws_cloudwatch_event_rule" "this" {
  count = var.eventbridge ? 1 : 0

  name        = var.name
  description = "Objects created under ${var.filter_prefix} in ${var.bucket}"
  tags        = var.tags

  event_pattern = jsonencode({
    source      = ["aws.s3"]
    detail-type = ["Object Created"]
    detail = {
      bucket = { name = [var.bucket] }
      object = { key = [{ prefix = var.filter_prefix }] }
    }
  })
}

resource "aws_cloudwatch_event_target" "this" {
  count = var.eventbridge ? 1 : 0

  rule = aws_cloudwatch_event_rule.this[0].name
  arn  = aws_sqs_queue.this.arn
}
