# PostgreSQL, and its URL as a secret.
#
# berthd reads the URL when it starts, so the password must not change behind its back:
# it is made once and changed by hand (infra/operations.md, keys). It is in the state,
# which must be encrypted and closed to others.

data "aws_secretsmanager_random_password" "database" {
  password_length     = 40
  exclude_punctuation = true # it stands in a URL
}

# Each plan draws another; the first one stays.
resource "terraform_data" "password" {
  input = data.aws_secretsmanager_random_password.database.random_password

  lifecycle {
    ignore_changes = [input]
  }
}

locals {
  aurora        = var.database.engine == "aurora"
  password      = terraform_data.password.output
  database_host = local.aurora ? aws_rds_cluster.this[0].endpoint : aws_db_instance.this[0].address
}

resource "aws_secretsmanager_secret" "database" {
  name_prefix = "${var.name}-database-url-"
  description = "BERTH_DATABASE_URL"
  kms_key_id  = var.secrets_key_arn
  tags        = var.tags
}

resource "aws_secretsmanager_secret_version" "database" {
  secret_id     = aws_secretsmanager_secret.database.id
  secret_string = "postgres://berth:${local.password}@${local.database_host}:5432/berth?sslmode=${var.database.sslmode}"

  lifecycle {
    ignore_changes = [secret_string] # rotated by hand
  }
}

resource "aws_db_subnet_group" "this" {
  name_prefix = "${var.name}-"
  subnet_ids  = var.private_subnet_ids
  tags        = var.tags
}

resource "aws_rds_cluster" "this" {
  count = local.aurora ? 1 : 0

  cluster_identifier_prefix       = "${var.name}-"
  engine                          = "aurora-postgresql"
  engine_mode                     = "provisioned"
  engine_version                  = var.database.version
  database_name                   = "berth"
  master_username                 = "berth"
  master_password                 = local.password
  db_subnet_group_name            = aws_db_subnet_group.this.name
  vpc_security_group_ids          = [aws_security_group.database.id]
  storage_encrypted               = true
  kms_key_id                      = var.database.kms_key_arn
  backup_retention_period         = var.database.backup_days
  copy_tags_to_snapshot           = true
  deletion_protection             = var.database.deletion_protection
  skip_final_snapshot             = false
  final_snapshot_identifier       = "${var.name}-final"
  enabled_cloudwatch_logs_exports = ["postgresql"]
  tags                            = var.tags

  serverlessv2_scaling_configuration {
    min_capacity = var.database.min_acu
    max_capacity = var.database.max_acu
  }

  lifecycle {
    ignore_changes = [master_password, engine_version]
  }
}

resource "aws_rds_cluster_instance" "this" {
  count = local.aurora ? var.database.instances : 0

  identifier_prefix               = "${var.name}-"
  cluster_identifier              = aws_rds_cluster.this[0].id
  engine                          = aws_rds_cluster.this[0].engine
  instance_class                  = "db.serverless"
  performance_insights_enabled    = true
  performance_insights_kms_key_id = var.database.kms_key_arn
  auto_minor_version_upgrade      = true
  tags                            = var.tags
}

resource "aws_db_instance" "this" {
  count = local.aurora ? 0 : 1

  identifier_prefix               = "${var.name}-"
  engine                          = "postgres"
  engine_version                  = var.database.version
  instance_class                  = var.database.instance_class
  allocated_storage               = var.database.storage_gb
  max_allocated_storage           = var.database.storage_gb * 10
  storage_type                    = "gp3"
  storage_encrypted               = true
  kms_key_id                      = var.database.kms_key_arn
  db_name                         = "berth"
  username                        = "berth"
  password                        = local.password
  db_subnet_group_name            = aws_db_subnet_group.this.name
  vpc_security_group_ids          = [aws_security_group.database.id]
  multi_az                        = var.database.multi_az
  publicly_accessible             = false
  backup_retention_period         = var.database.backup_days
  copy_tags_to_snapshot           = true
  deletion_protection             = var.database.deletion_protection
  skip_final_snapshot             = false
  final_snapshot_identifier       = "${var.name}-final"
  performance_insights_enabled    = true
  performance_insights_kms_key_id = var.database.kms_key_arn
  auto_minor_version_upgrade      = true
  enabled_cloudwatch_logs_exports = ["postgresql"]
  tags                            = var.tags

  lifecycle {
    ignore_changes = [password, engine_version]
  }
}
