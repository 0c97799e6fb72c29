// Package crash proves that Berth converges from any crash. It owns no code that runs
// in production: all of it is tests.
//
//   - cut_test.go numbers each SQL statement, S3 call and SQS call of a process and ends
//     the process at any of them, before it or after it.
//   - check_test.go is the judge: F1 to F9 of the design, read from the rows and from S3.
//   - flows_test.go has the flows, boundaries_test.go runs each with a crash at each of its
//     boundaries, and pins how many there are.
//   - rewrite_test.go takes guards away, one at a time; controls_test.go demands that the
//     judge sees it.
//   - random_test.go interleaves everything at random; signals_test.go kills and stops real
//     processes; soak_test.go does so for minutes with the real berthd.
//
// `make test` runs a part of it that takes less than a minute; `make test-crash` all.
package crash
