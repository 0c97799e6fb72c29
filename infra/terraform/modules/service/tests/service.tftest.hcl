mock_provider "aws" {
  mock_data "aws_region" {
    defaults = { region = "eu-central-1" }
  }
  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
  mock_data "aws_secretsmanager_random_password" {
    defaults = { random_password = "not-a-real-password" }
  }
  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::111122223333:role/berth" }
  }
  mock_resource "aws_lb" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-central-1:111122223333:loadbalancer/app/berth/1" }
  }
  mock_resource "aws_lb_target_group" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-central-1:111122223333:targetgroup/berth/1" }
  }
  mock_resource "aws_lb_listener" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-central-1:111122223333:listener/app/berth/1/2" }
  }
  mock_resource "aws_secretsmanager_secret" {
    defaults = { arn = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:berth-database-url" }
  }
  mock_resource "aws_cloudwatch_log_group" {
    defaults = { arn = "arn:aws:logs:eu-central-1:111122223333:log-group:berth" }
  }
  mock_resource "aws_appautoscaling_policy" {
    defaults = { arn = "arn:aws:autoscaling:eu-central-1:111122223333:scalingPolicy:1" }
  }
}

variables {
  image              = "111122223333.dkr.ecr.eu-central-1.amazonaws.com/berthd:1.0.0"
  vpc_id             = "vpc-1"
  public_subnet_ids  = ["subnet-1", "subnet-2"]
  private_subnet_ids = ["subnet-3", "subnet-4"]
  ingress_cidrs      = ["0.0.0.0/0", "2001:db8::/32"]
  certificate_arn    = "arn:aws:acm:eu-central-1:111122223333:certificate/1"
  public_url         = "https://uploads.example.com"
  queue_name         = "berth-events"
  config = {
    stores = { main = { region = "eu-central-1", bucket = "example-uploads", prefix = "berth/" } }
    auth   = { jwks_url = "https://id.example.com/.well-known/jwks.json" }
  }
  role_statements = [
    {
      api      = [{ Sid = "Objects", Effect = "Allow", Action = ["s3:PutObject"], Resource = ["arn:aws:s3:::example-uploads/berth/*"] }]
      events   = [{ Sid = "Objects", Effect = "Allow", Action = ["s3:GetObject"], Resource = ["arn:aws:s3:::example-uploads/berth/*"] }]
      worker   = [{ Sid = "Objects", Effect = "Allow", Action = ["s3:DeleteObjectVersion"], Resource = ["arn:aws:s3:::example-uploads/berth/*"], Condition = { Bool = { x = "y" } } }]
      operator = []
    },
    {
      api      = []
      events   = [{ Sid = "Queue", Effect = "Allow", Action = ["sqs:ReceiveMessage"], Resource = ["arn:aws:sqs:eu-central-1:111122223333:berth-events"] }]
      worker   = []
      operator = [{ Sid = "Queue", Effect = "Allow", Action = ["sqs:GetQueueAttributes"], Resource = ["arn:aws:sqs:eu-central-1:111122223333:berth-events"] }]
    },
  ]
}

run "defaults" {
  assert {
    condition     = toset(keys(aws_ecs_service.role)) == toset(["api", "events", "worker"])
    error_message = "a service for each role"
  }
  assert {
    condition = alltrue([
      for role, t in aws_ecs_task_definition.role :
      jsondecode(t.container_definitions)[0].command == ["serve", "--role", role] &&
      jsondecode(t.container_definitions)[0].readonlyRootFilesystem &&
      jsondecode(t.container_definitions)[0].user == "65532:65532"
    ])
    error_message = "each serves its role, without root, and writes nowhere"
  }
  assert {
    condition     = alltrue([for t in aws_ecs_task_definition.role : contains(jsondecode(t.container_definitions)[0].healthCheck.command, "--live")]) && aws_lb_target_group.api.health_check[0].path == "/healthz"
    error_message = "a database that is away has no task replaced"
  }
  assert {
    condition     = yamldecode(one([for e in jsondecode(aws_ecs_task_definition.role["api"].container_definitions)[0].environment : e.value if e.name == "BERTH_CONFIG_YAML"])).listen == ":8080"
    error_message = "the configuration is YAML, and listens where the load balancer looks"
  }
  assert {
    condition     = alltrue([for t in aws_ecs_task_definition.tool : jsondecode(t.container_definitions)[0].image == var.image]) && strcontains(output.start_services, "api events worker")
    error_message = "one image for all, and a way to start after the first migration"
  }
  assert {
    condition     = !strcontains(aws_ecs_task_definition.role["api"].container_definitions, "not-a-real-password")
    error_message = "the password is no part of a task definition"
  }
  assert {
    condition     = [for s in jsondecode(aws_ecs_task_definition.role["api"].container_definitions)[0].secrets : s.name] == ["BERTH_DATABASE_URL"]
    error_message = "the database's URL is a secret"
  }
  assert {
    condition     = flatten([for s in jsondecode(aws_iam_role_policy.task["events"].policy).Statement : s.Action]) == ["s3:GetObject", "sqs:ReceiveMessage"]
    error_message = "events has its own rights, of all modules"
  }
  assert {
    condition     = flatten([for s in jsondecode(aws_iam_role_policy.task["api"].policy).Statement : s.Action]) == ["s3:PutObject"]
    error_message = "api has no right of another's"
  }
  assert {
    condition     = one([for s in jsondecode(aws_iam_role_policy.task["worker"].policy).Statement : s.Condition]) == { Bool = { x = "y" } }
    error_message = "conditions are kept"
  }
  assert {
    condition     = toset(keys(aws_iam_role.task)) == toset(["api", "events", "worker", "operator"])
    error_message = "a role for each, and one for those who look"
  }
  assert {
    condition     = length(aws_rds_cluster.this) == 1 && aws_rds_cluster.this[0].storage_encrypted && length(aws_db_instance.this) == 0
    error_message = "Aurora by default, encrypted"
  }
  assert {
    condition     = length(aws_vpc_security_group_ingress_rule.lb) == 4
    error_message = "both ports for both blocks"
  }
  assert {
    condition     = aws_lb_listener.http.default_action[0].redirect[0].protocol == "HTTPS"
    error_message = "no API without TLS"
  }
  assert {
    condition     = output.metrics_namespace == null && length(jsondecode(aws_ecs_task_definition.role["api"].container_definitions)) == 1
    error_message = "no agent unless asked for"
  }
  assert {
    condition     = !can(yamldecode(one([for e in jsondecode(aws_ecs_task_definition.role["api"].container_definitions)[0].environment : e.value if e.name == "BERTH_CONFIG_YAML"])).telemetry) && length(aws_vpc_security_group_egress_rule.tasks_otlp) == 0
    error_message = "no traces unless asked for"
  }
}

run "traced" {
  variables {
    tracing = { otlp_endpoint = "http://collector.internal:4318", sample_ratio = 0.1 }
    secrets = { OTEL_EXPORTER_OTLP_HEADERS = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:otlp" }
  }

  assert {
    condition     = yamldecode(one([for e in jsondecode(aws_ecs_task_definition.role["worker"].container_definitions)[0].environment : e.value if e.name == "BERTH_CONFIG_YAML"])).telemetry == { otlp_endpoint = "http://collector.internal:4318", sample_ratio = 0.1 }
    error_message = "berthd is told where traces go"
  }
  assert {
    condition     = [for r in aws_vpc_security_group_egress_rule.tasks_otlp : r.from_port] == [4318]
    error_message = "and the network lets them go there"
  }
}

run "traced_over_https" {
  variables {
    tracing = { otlp_endpoint = "https://otlp.example.com" }
  }

  assert {
    condition     = length(aws_vpc_security_group_egress_rule.tasks_otlp) == 0
    error_message = "HTTPS is open already"
  }
}

run "a_receiver_without_scheme" {
  command = plan

  variables {
    tracing = { otlp_endpoint = "collector:4318" }
  }

  expect_failures = [var.tracing]
}

run "with_metrics_outbox_and_rds" {
  variables {
    metrics_image = "public.ecr.aws/cloudwatch-agent/cloudwatch-agent:1"
    outbox_arns   = { topic = "arn:aws:sns:eu-central-1:111122223333:file-events" }
    database      = { engine = "rds" }
  }

  assert {
    condition     = length(jsondecode(aws_ecs_task_definition.role["worker"].container_definitions)) == 2
    error_message = "the agent runs beside berthd"
  }
  assert {
    condition     = contains(flatten([for s in jsondecode(aws_iam_role_policy.task["worker"].policy).Statement : s.Action]), "sns:Publish")
    error_message = "the worker publishes"
  }
  assert {
    condition     = !contains(flatten([for s in jsondecode(aws_iam_role_policy.task["api"].policy).Statement : s.Action]), "sns:Publish")
    error_message = "and nobody else"
  }
  assert {
    condition     = aws_db_instance.this[0].multi_az && !aws_db_instance.this[0].publicly_accessible && length(aws_rds_cluster.this) == 0
    error_message = "two zones, and no way from outside"
  }
  assert {
    condition     = output.metrics_namespace == "Berth/berth"
    error_message = "module alarms needs it"
  }
}

run "webhooks_only" {
  variables {
    queue_name = null
  }

  assert {
    condition     = toset(keys(aws_ecs_service.role)) == toset(["api", "worker"])
    error_message = "nothing polls"
  }
}

run "tools_of_the_next_release" {
  variables {
    tools_image = "111122223333.dkr.ecr.eu-central-1.amazonaws.com/berthd:1.1.0"
  }

  assert {
    condition     = alltrue([for t in aws_ecs_task_definition.tool : endswith(jsondecode(t.container_definitions)[0].image, ":1.1.0")]) && alltrue([for t in aws_ecs_task_definition.role : endswith(jsondecode(t.container_definitions)[0].image, ":1.0.0")])
    error_message = "the next release migrates while this one serves"
  }
}

run "refuses_a_delay_of_its_own" {
  command = plan

  variables {
    config = {
      stores     = {}
      auth       = {}
      stop_delay = "1m"
    }
  }

  expect_failures = [var.config]
}

run "refuses_latest" {
  command = plan

  variables {
    image = "berthd:latest"
  }

  expect_failures = [var.image]
}

run "refuses_secrets_in_the_configuration" {
  command = plan

  variables {
    config = {
      stores = {}
      auth   = { hs256_secret = "0123456789abcdef0123456789abcdef" }
    }
  }

  expect_failures = [var.config]
}

run "refuses_one_zone" {
  command = plan

  variables {
    private_subnet_ids = ["subnet-3"]
  }

  expect_failures = [var.private_subnet_ids]
}
