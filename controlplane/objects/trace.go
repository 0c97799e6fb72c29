package objects

import (
	"context"
	"errors"

	"berth/models"
	"berth/tracing"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// traced makes a span of each call that is made for something that is traced, its retries
// included. It says operation, store and bucket, and what S3 calls its answer; not the key.
func traced(t *tracing.Tracer, store models.StoreName, bucket string) func(*middleware.Stack) error {
	call := func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
		operation := middleware.GetOperationName(ctx)
		ctx, span := t.Child(ctx, tracing.Client, "S3/"+operation, tracing.String("rpc.system", "aws-api"), tracing.String("rpc.service", "S3"),
			tracing.String("rpc.method", operation), tracing.String("aws.s3.bucket", bucket), tracing.String("berth.store", string(store)))
		out, meta, err := next.HandleInitialize(ctx, in)
		if id, ok := awsmiddleware.GetRequestIDMetadata(meta); ok {
			span.Set(tracing.String("aws.request_id", id))
		}
		if r, ok := awsmiddleware.GetRawResponse(meta).(*smithyhttp.Response); ok && r != nil {
			span.Set(tracing.Int("http.response.status_code", r.StatusCode))
		}
		var api smithy.APIError
		switch {
		case errors.As(err, &api):
			span.Fail(api.ErrorCode())
			span.End(nil)
		case err != nil && ctx.Err() == nil:
			span.Fail("unreachable")
			span.End(nil)
		default:
			span.End(ctx.Err())
		}
		return out, meta, err
	}
	return func(s *middleware.Stack) error {
		return s.Initialize.Add(middleware.InitializeMiddlewareFunc("BerthTrace", call), middleware.Before)
	}
}
