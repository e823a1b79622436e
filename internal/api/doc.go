// Package api is the edge: it turns Connect, gRPC, gRPC-Web and JSON calls into questions to the scheduler and the store, and
// their answers into messages. It knows no SQL and makes no scheduling decision.
//
// A call meets, in this order: logins.go and auth.go (who calls, and may that credential use this service at all), codec.go
// (is it a message), clean.go (how long may it take, and what does an error look like outside), validate.go (do the rules beside
// the fields hold), later.go (does it ask for what this release does not do), and then its handler: tasks.go, wait.go, admin.go,
// keys.go, work.go, peer.go. errors.go is the one table of errors.
//
// # Errors
//
// Every error carries an ErrorDetail, with three exceptions that the transport answers itself, before a message exists: a message
// beyond the size limit (resource_exhausted), a broken frame or an unknown compression (invalid_argument, unimplemented), and a
// path that no service has (404). A text that is not UTF-8 is named by its field in the binary forms; in JSON the decoder stops
// at the byte and cannot say which field it was in.
package api
