output "lb_dns_name" {
  description = "Where the API's name must point."
  value       = aws_lb.this.dns_name
}

output "lb_zone_id" {
  description = "Zone of that name, for an alias record."
  value       = aws_lb.this.zone_id
}

output "cluster_name" {
  description = "ECS cluster."
  value       = aws_ecs_cluster.this.name
}

output "migrate_task_definition_arn" {
  description = "Task that brings the schema to the image's version: run it before the services of a new image (tools_image)."
  value       = aws_ecs_task_definition.tool["migrate"].arn
}

output "run_tool" {
  description = "Command that runs a one-off task; replace TOOL by migrate, doctor or reconcile."
  value = join(" ", [
    "aws ecs run-task --launch-type FARGATE --cluster ${aws_ecs_cluster.this.name} --task-definition ${var.name}-TOOL",
    "--network-configuration 'awsvpcConfiguration={subnets=[${join(",", var.private_subnet_ids)}],securityGroups=[${aws_security_group.tasks.id}]}'",
  ])
}

output "start_services" {
  description = "Command that has ECS start the services anew: after the first migrate, since what started before it has ended and was given up."
  value       = "for role in ${join(" ", keys(local.roles))}; do aws ecs update-service --cluster ${aws_ecs_cluster.this.name} --service $role --force-new-deployment; done"
}

output "task_role_arns" {
  description = "Roles of the tasks: api, events, worker, operator. For key and bucket policies elsewhere."
  value       = { for role, r in aws_iam_role.task : role => r.arn }
}

output "database_secret_arn" {
  description = "Secret that holds BERTH_DATABASE_URL."
  value       = aws_secretsmanager_secret.database.arn
}

output "database_identifier" {
  description = "Aurora cluster or RDS instance."
  value       = local.aurora ? aws_rds_cluster.this[0].id : aws_db_instance.this[0].identifier
}

output "metrics_namespace" {
  description = "CloudWatch namespace of berthd's metrics, for module alarms; null without metrics_image."
  value       = var.metrics_image == null ? null : local.metrics_namespace
}
