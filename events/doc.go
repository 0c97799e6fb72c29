// Package events hears from S3: it reads notifications from an SQS queue or a
// webhook's body, whatever their format, and hands them to whoever settles them.
//
// It owns the formats, the consumer, and the care of the dead-letter queues. The same
// consumer reads the queue on which due reap tasks are announced. It imports
// models, the SQS client and the Prometheus client. It knows neither the database nor
// what an event means: Settler does.
//
// Everything rests on one thing: a message is deleted only after every event in it is
// settled, and settling twice, late or in any order is harmless. So each doubt ends in
// "let it come again":
//
//   - A message that cannot be read is left to the queue's redrive policy. Its
//     visibility is shortened, so that it reaches the dead-letter queue soon, and its
//     good records are settled each time.
//   - A fault that passes (database down, S3 throttling) hides its messages for longer
//     each time they were received. Receives are what the redrive policy counts, so
//     while everything fails the pollers stop receiving: see breaker.
//   - A stop finishes what is in hand, or makes it visible again.
package events
