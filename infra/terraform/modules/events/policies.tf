# What each of Berth's roles may do with the queues. infra/code_test.go holds it against
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

  # The queue of due deletions: the worker tells itself. Its dead letters are as dlq_actions.
  reap_actions = {
    api    = []
    events = []
    worker = [
      "sqs:ChangeMessageVisibility",
      "sqs:DeleteMessage",
      "sqs:ReceiveMessage",
      "sqs:SendMessage",
    ]
    # berthd events dlq --queue reap.
    operator = [
      "sqs:GetQueueAttributes",
      "sqs:SendMessage",
    ]
  }

  role_statements = {
    for role, actions in local.queue_actions : role => concat(
      [for a in length(actions) > 0 ? [actions] : [] : { Sid = "Queue", Effect = "Allow", Action = a, Resource = [aws_sqs_queue.this.arn] }],
      [for a in length(local.dlq_actions[role]) > 0 ? [local.dlq_actions[role]] : [] : { Sid = "DeadLetters", Effect = "Allow", Action = a, Resource = [aws_sqs_queue.dlq.arn] }],
      [
        for a in var.reap_queue && length(local.reap_actions[role]) > 0 ? [local.reap_actions[role]] : [] :
        { Sid = "ReapQueue", Effect = "Allow", Action = a, Resource = [aws_sqs_queue.reap[0].arn] }
      ],
      [
        for a in var.reap_queue && length(local.dlq_actions[role]) > 0 ? [local.dlq_actions[role]] : [] :
        { Sid = "ReapDeadLetters", Effect = "Allow", Action = a, Resource = [aws_sqs_queue.reap_dlq[0].arn] }
      ],
      # Of encrypted queues, the worker and the operator also send.
      [
        for key in local.encrypted && (length(actions) > 0 || var.reap_queue && length(local.reap_actions[role]) > 0) ? [local.key_arn] : [] :
        { Sid = "QueueKey", Effect = "Allow", Action = role == "events" ? ["kms:Decrypt"] : ["kms:Decrypt", "kms:GenerateDataKey"], Resource = [key] }
      ],
    )
  }

  # Known when planning, unlike the ARN of a key that is yet to be made.
  encrypted = var.create_key || var.kms_key_arn != null
}
