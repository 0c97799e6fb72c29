mock_provider "aws" {}

variables {
  metrics_namespace = "Berth/berth"
  queue_name        = "berth-events"
  dlq_name          = "berth-events-dlq"
  alarm_actions     = ["arn:aws:sns:eu-central-1:111122223333:people"]
}

run "one_for_each_playbook" {
  assert {
    condition = toset([for name in output.alarm_names : trimprefix(name, "berth-")]) == toset([
      "tasks-failed", "tasks-old", "tasks-old-loops", "lease-takeovers", "uploads-past-deadline", "verification-failures",
      "orphans-found", "orphans-found-late", "reconcile-missing", "counter-drift", "dlq-not-empty", "events-old",
    ])
    error_message = "an alarm is missing, or has no page"
  }
  assert {
    condition     = endswith(aws_cloudwatch_metric_alarm.own["tasks-old-loops"].alarm_description, "infra/playbooks/tasks-old.md")
    error_message = "descriptions link to the page"
  }
  assert {
    condition     = alltrue([for name in ["tasks-failed", "tasks-old-loops", "uploads-past-deadline", "orphans-found-late"] : aws_cloudwatch_metric_alarm.own[name].treat_missing_data == "breaching"])
    error_message = "these fire when nothing is reported"
  }
  assert {
    condition     = alltrue([for a in aws_cloudwatch_metric_alarm.own : length([for q in a.metric_query : q if q.return_data]) == 1])
    error_message = "an alarm judges one series"
  }
  assert {
    condition     = alltrue([for a in aws_cloudwatch_metric_alarm.own : alltrue([for q in a.metric_query : strcontains(q.expression, "SCHEMA(\"Berth/berth\"") if !q.return_data])])
    error_message = "queries look into the service's namespace"
  }
  assert {
    condition     = aws_cloudwatch_metric_alarm.own["reconcile-missing"].alarm_actions == toset(["arn:aws:sns:eu-central-1:111122223333:people"])
    error_message = "without wake_actions the others are told"
  }
}

run "thresholds_and_waking" {
  variables {
    thresholds   = { events-old = 60 }
    wake_actions = ["arn:aws:sns:eu-central-1:111122223333:pager"]
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.queue["events-old"].threshold == 60 && aws_cloudwatch_metric_alarm.queue["dlq-not-empty"].threshold == 0
    error_message = "only what is given changes"
  }
  assert {
    condition     = aws_cloudwatch_metric_alarm.own["reconcile-missing"].alarm_actions == toset(["arn:aws:sns:eu-central-1:111122223333:pager"])
    error_message = "lost bytes wake somebody"
  }
}

run "with_a_reap_queue" {
  variables {
    reap_dlq_name = "berth-events-reap-dlq"
    thresholds    = { dlq-not-empty-reap = 5 }
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.queue["dlq-not-empty-reap"].threshold == 5 && aws_cloudwatch_metric_alarm.queue["dlq-not-empty-reap"].dimensions["QueueName"] == "berth-events-reap-dlq"
    error_message = "its dead letters are watched, from where it is said"
  }
}

run "without_own_metrics" {
  variables {
    metrics_namespace = null
  }

  assert {
    condition     = join(" ", output.alarm_names) == "berth-dlq-not-empty berth-events-old"
    error_message = "the queue is watched all the same"
  }
}

run "refuses_an_unknown_alarm" {
  command = plan

  variables {
    thresholds = { task-failed = 1 }
  }

  expect_failures = [var.thresholds]
}
