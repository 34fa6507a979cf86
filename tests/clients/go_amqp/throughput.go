package main

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/Azure/go-amqp"
)

// throughput sends `count` durable messages of `size` octets to `address` with `window` of them unconfirmed at most, and receives and
// accepts as many at the same time, each on a connection of its own ("way": "both"), or does one of the two ("in", "out").
// It answers with the seconds from the first transfer to the last confirmation and the answered detach of the receiver.
func throughput(ctx context.Context, command object) (object, error) {
	count, window := int(number(command["count"])), int(number(command["window"]))
	address := command["address"].(string)
	way, _ := command["way"].(string)
	ends := make(chan error, 2)
	var parts []func() error
	if way != "out" {
		session, done, err := connected(ctx, command)
		if err != nil {
			return nil, err
		}
		defer done()
		mode := amqp.SenderSettleModeUnsettled
		sender, err := session.NewSender(ctx, address, &amqp.SenderOptions{SettlementMode: mode.Ptr()})
		if err != nil {
			return nil, err
		}
		body := make([]byte, number(command["size"]))
		rand.Read(body)
		parts = append(parts, func() error { return sendAll(ctx, sender, body, count, window) })
	}
	if way != "in" {
		session, done, err := connected(ctx, command)
		if err != nil {
			return nil, err
		}
		defer done()
		receiver, err := session.NewReceiver(ctx, address, &amqp.ReceiverOptions{Credit: int32(window)})
		if err != nil {
			return nil, err
		}
		parts = append(parts, func() error { return receiveAll(ctx, receiver, count) })
	}
	began := time.Now()
	for _, part := range parts {
		go func() { ends <- part() }()
	}
	for range parts {
		if err := <-ends; err != nil {
			return nil, err
		}
	}
	return object{"seconds": time.Since(began).Seconds()}, nil
}

func connected(ctx context.Context, command object) (*amqp.Session, func() error, error) {
	connection, err := amqp.Dial(ctx, command["url"].(string), options(command))
	if err != nil {
		return nil, nil, err
	}
	session, err := connection.NewSession(ctx, nil)
	return session, connection.Close, err
}

func sendAll(ctx context.Context, sender *amqp.Sender, body []byte, count, window int) error {
	receipts := make(chan amqp.SendReceipt, window)
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for receipt := range receipts {
			state, err := receipt.Wait(ctx)
			if _, accepted := state.(*amqp.StateAccepted); err == nil && !accepted {
				err = &amqp.Error{Condition: amqp.ErrCondIllegalState, Description: "a message was not accepted"}
			}
			if err != nil {
				failed <- err
				return
			}
		}
	}()
	message := &amqp.Message{Header: &amqp.MessageHeader{Durable: true, Priority: 4}, Data: [][]byte{body}}
	for range count {
		receipt, err := sender.SendWithReceipt(ctx, message, nil)
		if err != nil {
			return err
		}
		select {
		case receipts <- receipt:
		case err := <-failed:
			return err
		}
	}
	close(receipts)
	return <-failed
}

func receiveAll(ctx context.Context, receiver *amqp.Receiver, count int) error {
	for range count {
		message, err := receiver.Receive(ctx, nil)
		if err != nil {
			return err
		}
		if err := receiver.AcceptMessage(ctx, message); err != nil {
			return err
		}
	}
	return receiver.Close(ctx)
}
