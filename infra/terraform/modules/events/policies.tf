# What each of Berth's roles may do with the queue. infra/code_test.go holds it against
# the calls in the code.

locals {
  queue_actions = {
    api    = []
    worker = []
    events = [
      "sqs:ChangeMessageVisibility",
      "sqs:DeleteMessage",
      "sqs:ReceiveMessage",
    ]
    # berthd doctor, which looks for its probe's message, and berthd events dlq, which
    # sends messages back.
    operator = [
      "sqs:ChangeMessageVisibility",
      "sqs:DeleteMessage",
      "sqs:GetQueueAttributes",
      "sqs:ReceiveMessage",
      "sqs:SendMessage",
    ]
  }

  dlq_actions = {
    api    = []
    worker = []
    events = []
    operator = [
      "sqs:ChangeMessageVisibility",
      "sqs:DeleteMessage",
      "sqs:GetQueueAttributes",
      "sqs:GetQueueUrl",
      "sqs:ReceiveMessage",
      "sqs:StartMessageMoveTask",
    ]
  }

  role_statements = {
    for role, actions in local.queue_actions : role => concat(
      [for a in length(actions) > 0 ? [actions] : [] : { Sid = "Queue", Effect = "Allow", Action = a, Resource = [aws_sqs_queue.this.arn] }],
      [for a in length(local.dlq_actions[role]) > 0 ? [local.dlq_actions[role]] : [] : { Sid = "DeadLetters", Effect = "Allow", Action = a, Resource = [aws_sqs_queue.dlq.arn] }],
      # Of an encrypted queue, the operator also sends.
      [
        for key in local.encrypted && length(actions) > 0 ? [local.key_arn] : [] :
        { Sid = "QueueKey", Effect = "Allow", Action = role == "operator" ? ["kms:Decrypt", "kms:GenerateDataKey"] : ["kms:Decrypt"], Resource = [key] }
      ],
    )
  }

  # Known when planning, unlike the ARN of a key that is yet to be made.
  encrypted = var.create_key || var.kms_key_arn != null
}
