package objects

import (
	"bytes"
	"context"
	"encoding/xml"
	"io"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// readPartNumber reads which part an error of CompleteMultipartUpload names. S3 says it
// in the body, and the SDK has no field for it. Also an answer of 200 may hold an
// error, so every body is looked at; none is large.
func readPartNumber(part *int) func(*s3.Options) {
	return func(o *s3.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("BerthPartNumber",
				func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
					out, meta, err := next.HandleDeserialize(ctx, in)
					if resp, ok := out.RawResponse.(*smithyhttp.Response); ok && err == nil && resp.Body != nil {
						*part = peekPartNumber(resp)
					}
					return out, meta, err
				}), middleware.After)
		})
	}
}

func peekPartNumber(resp *smithyhttp.Response) int {
	const most = 64 << 10
	body := resp.Body
	head, err := io.ReadAll(io.LimitReader(body, most))
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), again{err}, body), body}
	var e struct {
		XMLName    xml.Name `xml:"Error"`
		PartNumber int
	}
	if xml.Unmarshal(head, &e) != nil {
		return 0
	}
	return e.PartNumber
}

// again gives the error that the peeking met to the reader after it.
type again struct{ err error }

func (a again) Read([]byte) (int, error) {
	if a.err != nil {
		return 0, a.err
	}
	return 0, io.EOF
}
