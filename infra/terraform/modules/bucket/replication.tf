# A copy of everything elsewhere, made by S3 itself. Deletes are not copied: what the
# reaper removes here stays there until the destination's own lifecycle.

resource "aws_iam_role" "replication" {
  count = var.replication == null ? 0 : 1

  name_prefix = "berth-replication-"
  tags        = var.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "s3.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy" "replication" {
  count = var.replication == null ? 0 : 1

  name = "replicate"
  role = aws_iam_role.replication[0].id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      [
        {
          Effect   = "Allow"
          Action   = ["s3:GetReplicationConfiguration", "s3:ListBucket"]
          Resource = [local.bucket_arn]
        },
        {
          Effect   = "Allow"
          Action   = ["s3:GetObjectVersionForReplication", "s3:GetObjectVersionAcl", "s3:GetObjectVersionTagging"]
          Resource = [local.objects_arn]
        },
        {
          Effect   = "Allow"
          Action   = ["s3:ReplicateObject", "s3:ReplicateTags"]
          Resource = ["${var.replication.destination_bucket_arn}/${var.prefix}*"]
        },
      ],
      [
        for key in var.kms_key_arn == null ? [] : [var.kms_key_arn] :
        { Effect = "Allow", Action = ["kms:Decrypt"], Resource = [key] }
      ],
      [
        for key in var.replication.destination_kms_key_arn == null ? [] : [var.replication.destination_kms_key_arn] :
        { Effect = "Allow", Action = ["kms:Encrypt", "kms:GenerateDataKey"], Resource = [key] }
      ],
    )
  })
}

resource "aws_s3_bucket_replication_configuration" "this" {
  count = var.replication == null ? 0 : 1

  bucket = aws_s3_bucket.this.id
  role   = aws_iam_role.replication[0].arn

  rule {
    id     = "berth"
    status = "Enabled"

    filter {
      prefix = var.prefix
    }

    delete_marker_replication {
      status = "Disabled"
    }

    dynamic "source_selection_criteria" {
      for_each = var.replication.destination_kms_key_arn == null ? [] : [1]

      content {
        sse_kms_encrypted_objects {
          status = "Enabled"
        }
      }
    }

    destination {
      bucket        = var.replication.destination_bucket_arn
      storage_class = var.replication.storage_class

      dynamic "encryption_configuration" {
        for_each = var.replication.destination_kms_key_arn == null ? [] : [var.replication.destination_kms_key_arn]

        content {
          replica_kms_key_id = encryption_configuration.value
        }
      }
    }
  }

  depends_on = [aws_s3_bucket_versioning.this]
}
