// Package api is the edge: it turns Connect, gRPC, gRPC-Web and JSON calls into questions to the scheduler and the store, and
// their answers into messages. It decides who may ask (auth.go), what is well-formed (validate.go), and what an error looks
// like outside (errors.go, one table). It knows no SQL and makes no scheduling decision.
package api
