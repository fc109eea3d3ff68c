#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""A receiver of OTLP, by gRPC and by HTTP, on opentelemetry-proto and grpcio of PyPI: writes each span as a line of JSON.

receiver.py DIRECTORY [--refuse N]

Prints `GRPC_PORT HTTP_PORT` once it listens, on this machine only; spans go to DIRECTORY/spans.jsonl, and messages as a
collector's exporter to files writes them, to DIRECTORY/otlp.jsonl. The first N requests are refused with the answer that
OTLP has for a receiver that is overloaded. Ends with SIGTERM.
"""
import argparse
import base64
import http.server
import json
import signal
import threading
from concurrent import futures
from pathlib import Path

import grpc
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

arguments = argparse.ArgumentParser()
arguments.add_argument("directory", type=Path)
arguments.add_argument("--refuse", type=int, default=0)
arguments = arguments.parse_args()
output = (arguments.directory / "spans.jsonl").open("w", encoding="utf-8")
messages = (arguments.directory / "otlp.jsonl").open("w", encoding="utf-8")
lock = threading.Lock()
refusals = arguments.refuse


def is_overloaded():
    global refusals
    with lock:
        refusals -= 1
        return refusals >= 0


def value(any_value):
    return getattr(any_value, any_value.WhichOneof("value"))


def write(request):
    message = json_format.MessageToDict(request)
    for of_resource in message["resourceSpans"]:
        for of_scope in of_resource["scopeSpans"]:
            for span in of_scope["spans"]:
                # OTLP writes identifiers in hexadecimal digits.
                for name in ("traceId", "spanId", "parentSpanId"):
                    span[name] = base64.b64decode(span.get(name, "")).hex()
    with lock:
        messages.write(json.dumps(message) + "\n")
        messages.flush()
        for of_resource in request.resource_spans:
            resource = {each.key: value(each.value) for each in of_resource.resource.attributes}
            for of_scope in of_resource.scope_spans:
                for span in of_scope.spans:
                    line = {
                        "trace": span.trace_id.hex(),
                        "id": span.span_id.hex(),
                        "parent": span.parent_span_id.hex(),
                        "name": span.name,
                        "begin": span.start_time_unix_nano,
                        "end": span.end_time_unix_nano,
                        "status": span.status.code,
                        "attributes": {each.key: value(each.value) for each in span.attributes},
                        "resource": resource,
                    }
                    output.write(json.dumps(line) + "\n")
        output.flush()


class Service(trace_service_pb2_grpc.TraceServiceServicer):
    def Export(self, request, context):
        if is_overloaded():
            context.abort(grpc.StatusCode.UNAVAILABLE, "overloaded")
        write(request)
        return trace_service_pb2.ExportTraceServiceResponse()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        is_right = self.path == "/v1/traces" and self.headers["Content-Type"] == "application/x-protobuf"
        status, answer = (200, trace_service_pb2.ExportTraceServiceResponse().SerializeToString()) if is_right else (404, b"")
        if is_right and is_overloaded():
            status = 503
        if status == 200:
            write(trace_service_pb2.ExportTraceServiceRequest.FromString(body))
        self.send_response(status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


grpc_server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(), grpc_server)
grpc_port = grpc_server.add_insecure_port("127.0.0.1:0")
grpc_server.start()
http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=http_server.serve_forever, daemon=True).start()
ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
print(grpc_port, http_server.server_address[1], flush=True)
ended.wait()
grpc_server.stop(2).wait()
http_server.shutdown()
output.close()
messages.close()
