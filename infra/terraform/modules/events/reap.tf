# reap.dispatch: sqs — a queue on which berthd tells itself what is due to be deleted.

resource "aws_sqs_queue" "reap_dlq" {
  count = var.reap_queue ? 1 : 0

  name                       = "${var.name}-reap-dlq"
  message_retention_seconds  = 1209600
  visibility_timeout_seconds = var.visibility_seconds
  sqs_managed_sse_enabled    = local.key_arn == null ? true : null
  kms_master_key_id          = local.key_arn
  tags                       = var.tags
}

resource "aws_sqs_queue" "reap" {
  count = var.reap_queue ? 1 : 0

  name                       = "${var.name}-reap"
  message_retention_seconds  = 345600 # what is lost is announced anew
  visibility_timeout_seconds = var.visibility_seconds
  receive_wait_time_seconds  = 20
  sqs_managed_sse_enabled    = local.key_arn == null ? true : null
  kms_master_key_id          = local.key_arn
  tags                       = var.tags

  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.reap_dlq[0].arn
    maxReceiveCount     = var.max_receive_count
  })
}

resource "aws_sqs_queue_redrive_allow_policy" "reap_dlq" {
  count = var.reap_queue ? 1 : 0

  queue_url = aws_sqs_queue.reap_dlq[0].id

  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [aws_sqs_queue.reap[0].arn]
  })
}

resource "aws_sqs_queue_policy" "reap" {
  count = var.reap_queue ? 1 : 0

  queue_url = aws_sqs_queue.reap[0].id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "TLSOnly"
      Effect    = "Deny"
      Principal = "*"
      Action    = "sqs:*"
      Resource  = aws_sqs_queue.reap[0].arn
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }]
  })
}
