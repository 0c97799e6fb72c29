# One alarm for each page of infra/playbooks, and where a page has two conditions, one
# more with a suffix. Each fires on failing and on missing: what is not reported is as
# bad as what is reported bad.

locals {
  schema = var.metrics_namespace

  # Each has queries (Metrics Insights over berthd's metrics, whatever their other
  # dimensions) and one expression over them.
  own = {
    tasks-failed = {
      page    = "tasks-failed", threshold = 0, period = 300, periods = 1, missing = "breaching"
      queries = { failed = "SELECT MAX(berth_tasks) FROM SCHEMA(\"${coalesce(local.schema, "-")}\", kind, state) WHERE state = 'failed'" }
      # A kind without a failed task has no series, once anything is reported at all.
      alive      = "SELECT MAX(berth_uploads_past_deadline) FROM SCHEMA(\"${coalesce(local.schema, "-")}\", job)"
      expression = "FILL(failed, 0) + 0 * alive"
      text       = "a task has used up its attempts"
    }
    tasks-old = {
      page       = "tasks-old", threshold = 900, period = 300, periods = 2, missing = "notBreaching"
      queries    = { oldest = "SELECT MAX(berth_tasks_oldest_seconds) FROM SCHEMA(\"${coalesce(local.schema, "-")}\", kind)" }
      alive      = null
      expression = "oldest"
      text       = "work has been due for more than 15 minutes"
    }
    tasks-old-loops = {
      page = "tasks-old", threshold = 900, period = 300, periods = 1, missing = "breaching"
      queries = {
        reap   = "SELECT MAX(berth_loop_last_success_timestamp_seconds) FROM SCHEMA(\"${coalesce(local.schema, "-")}\", loop) WHERE loop = 'reap'"
        repair = "SELECT MAX(berth_loop_last_success_timestamp_seconds) FROM SCHEMA(\"${coalesce(local.schema, "-")}\", loop) WHERE loop = 'repair'"
      }
      alive      = null
      expression = "MAX([EPOCH(reap) - reap, EPOCH(repair) - repair])"
      text       = "the reaper or repair has not run for 15 minutes"
    }
    lease-takeovers = {
      page       = "lease-takeovers", threshold = 10, period = 900, periods = 1, missing = "notBreaching"
      queries    = { takeovers = "SELECT SUM(berth_lease_takeovers_total) FROM SCHEMA(\"${coalesce(local.schema, "-")}\", kind)" }
      alive      = null
      expression = "takeovers"
      text       = "more than a few leases die: workers are killed or stand still"
    }
    uploads-past-deadline = {
      page       = "uploads-past-deadline", threshold = 0, period = 300, periods = 3, missing = "breaching"
      queries    = { late = "SELECT MAX(berth_uploads_past_deadline) FROM SCHEMA(\"${coalesce(local.schema, "-")}\", job)" }
      alive      = null
      expression = "late"
      text       = "sessions past their end are not closed"
    }
    verification-failures = {
      page = "verification-failures", threshold = 5, period = 900, periods = 1, missing = "notBreaching"
      queries = {
        rejected = "SELECT SUM(berth_verifications_total) FROM SCHEMA(\"${coalesce(local.schema, "-")}\", outcome) WHERE outcome = 'rejected'"
        total    = "SELECT SUM(berth_verifications_total) FROM SCHEMA(\"${coalesce(local.schema, "-")}\", outcome)"
      }
      alive      = null
      expression = "100 * FILL(rejected, 0) / total"
      text       = "more than 5 of 100 uploads are rejected"
    }
    orphans-found = {
      page       = "orphans-found", threshold = 0, period = 3600, periods = 1, missing = "notBreaching"
      queries    = { found = "SELECT MAX(berth_reconcile_findings) FROM SCHEMA(\"${coalesce(local.schema, "-")}\", store, kind) WHERE kind IN ('orphan_object', 'orphan_multipart', 'leftover', 'foreign_version')" }
      alive      = null
      expression = "found"
      text       = "a reconciliation found what no row has"
    }
    orphans-found-late = {
      page       = "orphans-found", threshold = 172800, period = 3600, periods = 1, missing = "breaching"
      queries    = { last = "SELECT MIN(berth_reconcile_last_success_timestamp_seconds) FROM SCHEMA(\"${coalesce(local.schema, "-")}\", store)" }
      alive      = null
      expression = "EPOCH(last) - last"
      text       = "no reconciliation of a store has succeeded for two days"
    }
    reconcile-missing = {
      page       = "reconcile-missing", threshold = 0, period = 300, periods = 1, missing = "notBreaching"
      queries    = { found = "SELECT MAX(berth_reconcile_findings) FROM SCHEMA(\"${coalesce(local.schema, "-")}\", store, kind) WHERE kind IN ('missing_object', 'corrupt')" }
      alive      = null
      expression = "found"
      text       = "a file's object is gone or has changed"
    }
    counter-drift = {
      page       = "counter-drift", threshold = 0, period = 3600, periods = 1, missing = "notBreaching"
      queries    = { found = "SELECT MAX(berth_reconcile_findings) FROM SCHEMA(\"${coalesce(local.schema, "-")}\", store, kind) WHERE kind = 'counter_drift'" }
      alive      = null
      expression = "found"
      text       = "a counter is not what the rows say"
    }
  }

  queues = {
    dlq-not-empty = {
      queue  = var.dlq_name, metric = "ApproximateNumberOfMessagesVisible", threshold = 0, periods = 1
      text   = "notifications were given up on"
      exists = var.dlq_name != null
      page   = "dlq-not-empty"
    }
    dlq-not-empty-reap = {
      queue  = var.reap_dlq_name, metric = "ApproximateNumberOfMessagesVisible", threshold = 0, periods = 1
      text   = "announcements of due deletions were given up on"
      exists = var.reap_dlq_name != null
      page   = "dlq-not-empty"
    }
    events-old = {
      queue  = var.queue_name, metric = "ApproximateAgeOfOldestMessage", threshold = 300, periods = 2
      text   = "notifications wait for more than 5 minutes"
      exists = var.queue_name != null
      page   = "events-old"
    }
  }

  wake = length(var.wake_actions) > 0 ? var.wake_actions : var.alarm_actions
}

resource "aws_cloudwatch_metric_alarm" "own" {
  for_each = { for name, a in local.own : name => a if var.metrics_namespace != null }

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = "${each.value.text}: ${var.playbooks_url}/${each.value.page}.md"
  comparison_operator = "GreaterThanThreshold"
  threshold           = lookup(var.thresholds, each.key, each.value.threshold)
  evaluation_periods  = each.value.periods
  treat_missing_data  = each.value.missing
  alarm_actions       = each.key == "reconcile-missing" ? local.wake : var.alarm_actions
  ok_actions          = var.alarm_actions
  tags                = var.tags

  metric_query {
    id          = "verdict"
    expression  = each.value.expression
    label       = each.value.text
    return_data = true
  }

  dynamic "metric_query" {
    for_each = merge(each.value.queries, each.value.alive == null ? {} : { alive = each.value.alive })

    content {
      id          = metric_query.key
      expression  = metric_query.value
      period      = each.value.period
      return_data = false
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "queue" {
  for_each = { for name, a in local.queues : name => a if a.exists }

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = "${each.value.text}: ${var.playbooks_url}/${each.value.page}.md"
  namespace           = "AWS/SQS"
  metric_name         = each.value.metric
  dimensions          = { QueueName = each.value.queue }
  statistic           = "Maximum"
  period              = 300
  comparison_operator = "GreaterThanThreshold"
  threshold           = lookup(var.thresholds, each.key, each.value.threshold)
  evaluation_periods  = each.value.periods
  treat_missing_data  = "notBreaching" # a queue at rest for hours reports nothing
  alarm_actions       = var.alarm_actions
  ok_actions          = var.alarm_actions
  tags                = var.tags
}
