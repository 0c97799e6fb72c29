# What may be done with the bucket: by anybody at all (the bucket's own policy), and by
# each of Berth's roles. infra/code_test.go holds the roles against the calls in the code:
# an action that a role's code does not need is as much a failure as one that is missing.

locals {
  bucket_arn  = aws_s3_bucket.this.arn
  objects_arn = "${aws_s3_bucket.this.arn}/${var.prefix}*"

  bucket_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "TLSOnly"
        Effect    = "Deny"
        Principal = "*"
        Action    = "s3:*"
        Resource  = [local.bucket_arn, "${local.bucket_arn}/*"]
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
      {
        Sid       = "NoOldTLS"
        Effect    = "Deny"
        Principal = "*"
        Action    = "s3:*"
        Resource  = [local.bucket_arn, "${local.bucket_arn}/*"]
        Condition = { NumericLessThan = { "s3:TlsVersion" = "1.2" } }
      },
      {
        # In milliseconds. Caps what a leaked signing role could hand out.
        Sid       = "NoOldSignatures"
        Effect    = "Deny"
        Principal = "*"
        Action    = ["s3:GetObject", "s3:GetObjectVersion", "s3:PutObject"]
        Resource  = "${local.bucket_arn}/*"
        Condition = { NumericGreaterThan = { "s3:signatureAge" = tostring(var.signature_max_age_seconds * 1000) } }
      },
    ]
  })

  # On objects under the prefix.
  object_actions = {
    # Signs what clients send and read, begins, completes and aborts, and verifies.
    api = [
      "s3:AbortMultipartUpload",
      "s3:GetObject",
      "s3:GetObjectVersion",
      "s3:ListMultipartUploadParts",
      "s3:PutObject",
    ]
    # Looks at what S3 says was written.
    events = [
      "s3:GetObject",
      "s3:GetObjectVersion",
    ]
    # Finishes what clients left, removes what nobody wants, runs the steps, reconciles.
    worker = [
      "s3:AbortMultipartUpload",
      "s3:DeleteObject",
      "s3:DeleteObjectVersion",
      "s3:GetObject",
      "s3:GetObjectVersion",
      "s3:ListMultipartUploadParts",
      "s3:PutObject",
    ]
    # berthd doctor and berthd reconcile, by hand.
    operator = [
      "s3:AbortMultipartUpload",
      "s3:DeleteObject",
      "s3:DeleteObjectVersion",
      "s3:GetObject",
      "s3:GetObjectVersion",
      "s3:ListMultipartUploadParts",
      "s3:PutObject",
    ]
  }

  # On the bucket. Without s3:ListBucket a missing key is answered 403, not 404; it cannot
  # be narrowed to the prefix, since a HEAD names none.
  bucket_actions = {
    api    = ["s3:ListBucket", "s3:ListBucketMultipartUploads"]
    events = ["s3:ListBucket"]
    worker = ["s3:ListBucket", "s3:ListBucketMultipartUploads"]
    operator = [
      "s3:GetBucketCORS",
      "s3:GetBucketNotification",
      "s3:GetBucketObjectLockConfiguration",
      "s3:GetBucketVersioning",
      "s3:GetLifecycleConfiguration",
      "s3:ListBucket",
      "s3:ListBucketMultipartUploads",
    ]
  }

  # On the bucket, of keys under the prefix: to reap every version of a key, and to find an
  # upload's own beneath one that was written over it.
  listing_actions = {
    api      = ["s3:ListBucketVersions"]
    events   = ["s3:ListBucketVersions"]
    worker   = ["s3:ListBucketVersions"]
    operator = ["s3:ListBucketVersions"]
  }

  key_actions = {
    api      = ["kms:Decrypt", "kms:GenerateDataKey"]
    events   = ["kms:Decrypt"]
    worker   = ["kms:Decrypt"]
    operator = ["kms:Decrypt", "kms:GenerateDataKey"]
  }

  role_statements = {
    for role, actions in local.object_actions : role => concat(
      [
        { Sid = "Objects", Effect = "Allow", Action = actions, Resource = [local.objects_arn] },
        { Sid = "Bucket", Effect = "Allow", Action = local.bucket_actions[role], Resource = [local.bucket_arn] },
      ],
      [
        for listing in local.listing_actions[role] :
        {
          Sid       = "Versions", Effect = "Allow", Action = [listing], Resource = [local.bucket_arn]
          Condition = { StringLike = { "s3:prefix" = ["${var.prefix}*"] } }
        }
      ],
      [
        for key in var.kms_key_arn == null ? [] : [var.kms_key_arn] :
        { Sid = "Key", Effect = "Allow", Action = local.key_actions[role], Resource = [key] }
      ],
      [
        for inventory in role == "operator" && var.inventory != null ? [var.inventory] : [] :
        { Sid = "Inventory", Effect = "Allow", Action = ["s3:GetObject"], Resource = ["${inventory.destination_bucket_arn}/${inventory.prefix}/*"] }
      ],
    )
  }
}
