# berthd on ECS Fargate: one service for each role, so that each has its own rights, its
# own size and its own number; migrations and the doctor as one-off tasks.

data "aws_region" "this" {}

locals {
  port  = 8080
  roles = { for role, size in var.roles : role => size if role != "events" || var.queue_name != null }

  config = merge(
    var.config,
    { for key, value in { telemetry = var.tracing } : key => value if value != null },
    { listen = ":${local.port}", public_url = var.public_url },
  )

  # The port of the receiver of traces, where it is not that of HTTPS, which is open anyway.
  otlp_ports = [
    for t in var.tracing == null ? [] : [var.tracing] : tonumber(coalesce(
      one(regex("^https?://[^/:]+(?::([0-9]+))?", t.otlp_endpoint)),
      startswith(t.otlp_endpoint, "https:") ? "443" : "80",
    ))
  ]

  environment = [
    { name = "BERTH_CONFIG_YAML", value = yamlencode(local.config) },
  ]
  secrets = concat(
    [{ name = "BERTH_DATABASE_URL", valueFrom = aws_secretsmanager_secret.database.arn }],
    [for name, arn in var.secrets : { name = name, valueFrom = arn }],
  )

  # What every container of berthd has in common.
  container = {
    name                   = "berthd"
    image                  = var.image
    essential              = true
    user                   = "65532:65532"
    readonlyRootFilesystem = true
    environment            = local.environment
    secrets                = local.secrets
    stopTimeout            = 30 # berthd goes on answering for 5 s and ends within 15 s after that
    mountPoints            = [{ sourceVolume = "tmp", containerPath = "/tmp", readOnly = false }]
    linuxParameters        = { capabilities = { drop = ["ALL"] } }
  }

  # One-off tasks, run by hand or by a pipeline.
  tools = {
    migrate   = ["migrate"]
    doctor    = ["doctor", "--json"]
    reconcile = ["reconcile", "--json"]
  }
}

resource "aws_ecs_cluster" "this" {
  name = var.name
  tags = var.tags

  setting {
    name  = "containerInsights"
    value = "enabled"
  }
}

resource "aws_cloudwatch_log_group" "this" {
  for_each = toset(concat(keys(local.roles), ["tools"]))

  name              = "/berth/${var.name}/${each.key}"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.log_key_arn
  tags              = var.tags
}

resource "aws_ecs_task_definition" "role" {
  for_each = local.roles

  family                   = "${var.name}-${each.key}"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = each.value.cpu
  memory                   = each.value.memory
  execution_role_arn       = aws_iam_role.execution.arn
  task_role_arn            = aws_iam_role.task[each.key].arn
  tags                     = var.tags

  runtime_platform {
    operating_system_family = "LINUX"
    cpu_architecture        = var.architecture
  }

  volume {
    name = "tmp"
  }

  container_definitions = jsonencode(concat(
    [
      merge(local.container, {
        command      = ["serve", "--role", each.key]
        portMappings = [{ containerPort = local.port, protocol = "tcp" }]
        # Never the database: ECS would replace every task for an outage that this does not mend.
        healthCheck = {
          command     = ["CMD", "/berthd", "health", "--live", "--url", "http://127.0.0.1:${local.port}"]
          interval    = 15
          timeout     = 10
          retries     = 3
          startPeriod = 30
        }
        logConfiguration = {
          logDriver = "awslogs"
          options = {
            awslogs-group         = aws_cloudwatch_log_group.this[each.key].name
            awslogs-region        = data.aws_region.this.region
            awslogs-stream-prefix = "berthd"
          }
        }
      }),
    ],
    [for image in var.metrics_image == null ? [] : [var.metrics_image] : merge(local.agent, { image = image })],
  ))
}

resource "aws_ecs_task_definition" "tool" {
  for_each = local.tools

  family                   = "${var.name}-${each.key}"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = 512
  memory                   = 1024
  execution_role_arn       = aws_iam_role.execution.arn
  task_role_arn            = aws_iam_role.task["operator"].arn
  tags                     = var.tags

  runtime_platform {
    operating_system_family = "LINUX"
    cpu_architecture        = var.architecture
  }

  volume {
    name = "tmp"
  }

  container_definitions = jsonencode([
    merge(local.container, {
      image   = coalesce(var.tools_image, var.image)
      command = each.value
      logConfiguration = {
        logDriver = "awslogs"
        options = {
          awslogs-group         = aws_cloudwatch_log_group.this["tools"].name
          awslogs-region        = data.aws_region.this.region
          awslogs-stream-prefix = each.key
        }
      }
    }),
  ])
}

resource "aws_ecs_service" "role" {
  for_each = local.roles

  name            = each.key
  cluster         = aws_ecs_cluster.this.id
  task_definition = aws_ecs_task_definition.role[each.key].arn
  desired_count   = each.value.min
  launch_type     = "FARGATE"
  propagate_tags  = "SERVICE"
  tags            = var.tags

  # New before old: code of one release runs on the schema of the next.
  deployment_minimum_healthy_percent = 100
  deployment_maximum_percent         = 200
  health_check_grace_period_seconds  = each.key == "api" ? 60 : null

  deployment_circuit_breaker {
    enable   = true
    rollback = true
  }

  network_configuration {
    subnets         = var.private_subnet_ids
    security_groups = [aws_security_group.tasks.id]
  }

  dynamic "load_balancer" {
    for_each = each.key == "api" ? [1] : []

    content {
      target_group_arn = aws_lb_target_group.api.arn
      container_name   = "berthd"
      container_port   = local.port
    }
  }

  lifecycle {
    ignore_changes = [desired_count] # autoscaling's
  }

  depends_on = [aws_lb_listener.https, aws_iam_role_policy.task]
}
