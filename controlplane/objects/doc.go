// Package objects is Berth's S3 adapter: it signs what clients send, begins, completes
// and aborts multipart uploads, asks what lies in a bucket, and deletes by version id.
//
// It owns every S3 call and every signature, and it classifies what a store answers
// into models.ObjectError; what follows from an answer is the caller's to decide. It
// moves no object bytes. It may import models, the AWS SDK and golang.org/x, and
// nothing else of Berth.
//
// # Signing
//
// URLs are signed by a signer of our own (signer.go), byte-identical to those of the
// SDK's presign client, because signing 10,000 parts is one request's work here and the
// SDK's client takes 40 µs for each. Three things make it cheap: the day's key is
// derived once; the SHA-256 state after the bytes that all parts' canonical requests
// begin with is kept and restored for each part; and the buffers are pooled. What pins
// the bytes (length, checksum) is always a signed header, never a query parameter: S3
// signs a checksum in the query and then does not look at it.
package objects
