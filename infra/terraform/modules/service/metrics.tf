# The CloudWatch agent beside berthd: it scrapes /metrics on the task's own loopback and
# hands on what module alarms looks at, and no more: each series costs.

locals {
  metrics_namespace = "Berth/${var.name}"

  # Metric → its dimensions. infra/code_test.go holds the names against the code.
  metrics = {
    berth_lease_takeovers_total                    = ["kind"]
    berth_loop_last_success_timestamp_seconds      = ["loop"]
    berth_reconcile_findings                       = ["store", "kind"]
    berth_reconcile_last_success_timestamp_seconds = ["store"]
    berth_tasks                                    = ["kind", "state"]
    berth_tasks_oldest_seconds                     = ["kind"]
    berth_uploads_past_deadline                    = ["job"]
    berth_verifications_total                      = ["outcome"]
  }

  agent = {
    name      = "metrics"
    essential = false
    user      = "0:1994" # the image's own user reads its configuration
    environment = [
      { name = "PROMETHEUS_CONFIG_CONTENT", value = yamlencode({
        global = { scrape_interval = "1m", scrape_timeout = "10s" }
        scrape_configs = [{
          job_name       = "berthd"
          static_configs = [{ targets = ["127.0.0.1:${local.port}"] }]
        }]
      }) },
      { name = "CW_CONFIG_CONTENT", value = jsonencode({
        logs = {
          force_flush_interval = 15
          metrics_collected = {
            prometheus = {
              prometheus_config_path = "env:PROMETHEUS_CONFIG_CONTENT"
              log_group_name         = one(aws_cloudwatch_log_group.metrics[*].name)
              emf_processor = {
                metric_namespace = local.metrics_namespace
                metric_declaration = [
                  for name, dimensions in local.metrics : {
                    source_labels    = ["job"]
                    label_matcher    = "^berthd$"
                    dimensions       = [dimensions]
                    metric_selectors = ["^${name}$"]
                  }
                ]
              }
            }
          }
        }
      }) },
    ]
    logConfiguration = {
      logDriver = "awslogs"
      options = {
        awslogs-group         = aws_cloudwatch_log_group.this["tools"].name
        awslogs-region        = data.aws_region.this.region
        awslogs-stream-prefix = "metrics"
      }
    }
  }

  agent_statements = [{
    Effect   = "Allow"
    Action   = ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"]
    Resource = [for arn in aws_cloudwatch_log_group.metrics[*].arn : "${arn}:*"]
  }]
}

resource "aws_cloudwatch_log_group" "metrics" {
  count = var.metrics_image == null ? 0 : 1

  name              = "/berth/${var.name}/metrics"
  retention_in_days = 1 # CloudWatch keeps the metrics themselves
  kms_key_id        = var.log_key_arn
  tags              = var.tags
}
