output "alarm_names" {
  description = "Names of all alarms."
  value       = sort(concat([for a in aws_cloudwatch_metric_alarm.own : a.alarm_name], [for a in aws_cloudwatch_metric_alarm.queue : a.alarm_name]))
}
