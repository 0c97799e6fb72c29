# One role for each of berthd's: what one of them is tricked into, only it may do.

locals {
  assume = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ecs-tasks.amazonaws.com" }
    }]
  })

  task_roles = toset(concat(keys(local.roles), ["operator"]))

  outbox_statements = concat(
    [for arn in var.outbox_arns.queue == null ? [] : [var.outbox_arns.queue] : { Sid = "OutboxQueue", Effect = "Allow", Action = ["sqs:SendMessage"], Resource = [arn] }],
    [for arn in var.outbox_arns.topic == null ? [] : [var.outbox_arns.topic] : { Sid = "OutboxTopic", Effect = "Allow", Action = ["sns:Publish"], Resource = [arn] }],
  )

  # Sids of several buckets would collide; they are for people, who read them in the modules.
  statements = {
    for role in local.task_roles : role => concat(
      [for s in concat([for from in var.role_statements : from[role]]...) : { for k, v in s : k => v if k != "Sid" }],
      [for s in role == "worker" ? local.outbox_statements : [] : s],
      [for s in var.metrics_image == null || role == "operator" ? [] : local.agent_statements : s],
    )
  }
}

resource "aws_iam_role" "task" {
  for_each = local.task_roles

  name_prefix        = "${var.name}-${each.key}-"
  description        = "What berthd may do as ${each.key}"
  assume_role_policy = local.assume
  tags               = var.tags
}

resource "aws_iam_role_policy" "task" {
  for_each = local.task_roles

  name   = "berth"
  role   = aws_iam_role.task[each.key].id
  policy = jsonencode({ Version = "2012-10-17", Statement = local.statements[each.key] })
}

# What ECS needs to start a task: pull the image, write logs, read these secrets.
resource "aws_iam_role" "execution" {
  name_prefix        = "${var.name}-execution-"
  assume_role_policy = local.assume
  tags               = var.tags
}

data "aws_partition" "this" {}

resource "aws_iam_role_policy_attachment" "execution" {
  role       = aws_iam_role.execution.name
  policy_arn = "arn:${data.aws_partition.this.partition}:iam::aws:policy/service-role/AmazonECSTaskExecutionRolePolicy"
}

resource "aws_iam_role_policy" "secrets" {
  name = "secrets"
  role = aws_iam_role.execution.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      [{
        Effect   = "Allow"
        Action   = ["secretsmanager:GetSecretValue"]
        Resource = distinct([for s in local.secrets : s.valueFrom])
      }],
      [
        for key in var.secrets_key_arn == null ? [] : [var.secrets_key_arn] :
        { Effect = "Allow", Action = ["kms:Decrypt"], Resource = [key] }
      ],
    )
  })
}
