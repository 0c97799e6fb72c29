# api and worker grow with their CPU, events with the age of the oldest message.

resource "aws_appautoscaling_target" "role" {
  for_each = local.roles

  service_namespace  = "ecs"
  resource_id        = "service/${aws_ecs_cluster.this.name}/${aws_ecs_service.role[each.key].name}"
  scalable_dimension = "ecs:service:DesiredCount"
  min_capacity       = each.value.min
  max_capacity       = each.value.max
  tags               = var.tags
}

resource "aws_appautoscaling_policy" "cpu" {
  for_each = { for role, size in local.roles : role => size if role != "events" }

  name               = "cpu"
  policy_type        = "TargetTrackingScaling"
  service_namespace  = aws_appautoscaling_target.role[each.key].service_namespace
  resource_id        = aws_appautoscaling_target.role[each.key].resource_id
  scalable_dimension = aws_appautoscaling_target.role[each.key].scalable_dimension

  target_tracking_scaling_policy_configuration {
    target_value       = var.cpu_target
    scale_in_cooldown  = 300
    scale_out_cooldown = 60

    predefined_metric_specification {
      predefined_metric_type = "ECSServiceAverageCPUUtilization"
    }
  }
}

resource "aws_appautoscaling_policy" "events_out" {
  count = var.queue_name == null ? 0 : 1

  name               = "queue-age-out"
  policy_type        = "StepScaling"
  service_namespace  = aws_appautoscaling_target.role["events"].service_namespace
  resource_id        = aws_appautoscaling_target.role["events"].resource_id
  scalable_dimension = aws_appautoscaling_target.role["events"].scalable_dimension

  step_scaling_policy_configuration {
    adjustment_type         = "ChangeInCapacity"
    metric_aggregation_type = "Maximum"
    cooldown                = 120

    # Above the alarm's 60 s.
    step_adjustment {
      metric_interval_lower_bound = 0
      metric_interval_upper_bound = 240
      scaling_adjustment          = 1
    }
    step_adjustment {
      metric_interval_lower_bound = 240
      scaling_adjustment          = 3
    }
  }
}

resource "aws_appautoscaling_policy" "events_in" {
  count = var.queue_name == null ? 0 : 1

  name               = "queue-age-in"
  policy_type        = "StepScaling"
  service_namespace  = aws_appautoscaling_target.role["events"].service_namespace
  resource_id        = aws_appautoscaling_target.role["events"].resource_id
  scalable_dimension = aws_appautoscaling_target.role["events"].scalable_dimension

  step_scaling_policy_configuration {
    adjustment_type         = "ChangeInCapacity"
    metric_aggregation_type = "Maximum"
    cooldown                = 600

    step_adjustment {
      metric_interval_upper_bound = 0
      scaling_adjustment          = -1
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "events_out" {
  count = var.queue_name == null ? 0 : 1

  alarm_name          = "${var.name}-events-grow"
  alarm_description   = "Scaling, not for people: the oldest notification is older than a minute."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateAgeOfOldestMessage"
  dimensions          = { QueueName = var.queue_name }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 2
  threshold           = 60
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_appautoscaling_policy.events_out[0].arn]
  tags                = var.tags
}

resource "aws_cloudwatch_metric_alarm" "events_in" {
  count = var.queue_name == null ? 0 : 1

  alarm_name          = "${var.name}-events-shrink"
  alarm_description   = "Scaling, not for people: notifications are fetched at once."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateAgeOfOldestMessage"
  dimensions          = { QueueName = var.queue_name }
  statistic           = "Maximum"
  period              = 300
  evaluation_periods  = 3
  threshold           = 10
  comparison_operator = "LessThanThreshold"
  treat_missing_data  = "breaching" # an idle queue reports nothing
  alarm_actions       = [aws_appautoscaling_policy.events_in[0].arn]
  tags                = var.tags
}
