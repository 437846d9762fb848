#include "server/kv_events/kv_event_options.h"

#include <charconv>
#include <climits>
#include <utility>

#include "base/error.h"
#include "base/text/quote.h"
#include "json/parse.h"

namespace quire {
namespace {

constexpr std::string_view kTcp = "tcp://", kIpc = "ipc://";
constexpr const char* kEventsConfig = "--kv-events-config";
constexpr std::string_view kOwnMachine =
    "tcp://127.0.0.1:5557";  // vLLM's port; its default address is that of every machine

std::string_view host_of(std::string_view endpoint) {
  return endpoint.substr(kTcp.size(), endpoint.rfind(':') - kTcp.size());
}

bool names_loopback(std::string_view host) {
  return host == "localhost" || host == "[::1]" || host.starts_with("127.");
}

int64_t count_field(const Json& value, const std::string& field, int64_t least, int64_t most) {
  if (!value.is_number_integer() || value < least || value > most)
    throw invalid("{}: {} must be an integer from {} to {}, not {}", kEventsConfig, field, least, most,
                  describe(value));
  return value.get<int64_t>();
}

std::string text_field(const Json& value, const std::string& field) {
  if (value.is_null()) return {};
  if (!value.is_string()) throw invalid("{}: {} must be a string, not {}", kEventsConfig, field, describe(value));
  return value.get<std::string>();
}

}  // namespace

void check_kv_endpoint(std::string_view endpoint) {
  if (endpoint.starts_with(kIpc) && endpoint.size() > kIpc.size()) return;
  int port = 0;
  if (endpoint.starts_with(kTcp) && endpoint.rfind(':') > kTcp.size()) {
    const std::string_view digits = endpoint.substr(endpoint.rfind(':') + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (error != std::errc() || end != digits.data() + digits.size()) port = 0;
  }
  if (port < 1 || port > 65535)
    throw invalid("{} is not an endpoint for KV events; use tcp://HOST:PORT or ipc://PATH", quote(endpoint));
}

bool listens_at(std::string_view endpoint) {
  if (endpoint.starts_with(kIpc)) return true;
  const std::string_view host = host_of(endpoint);
  return host == "*" || host == "0.0.0.0" || host == "[::]" || names_loopback(host);
}

bool leaves_machine(std::string_view endpoint) {
  return !endpoint.starts_with(kIpc) && !names_loopback(host_of(endpoint));
}

KvEventOptions read_kv_events_config(std::string_view json, KvEventOptions options) {
  const Json config = parse_json(json, kEventsConfig);
  if (!config.is_object()) throw invalid("{} must be a JSON object, not {}", kEventsConfig, describe(config));
  bool enabled = true;
  for (const auto& [field, value] : config.items()) {
    if (field == "enable_kv_cache_events") {
      if (!value.is_boolean())
        throw invalid("{}: {} must be true or false, not {}", kEventsConfig, field, describe(value));
      enabled = enabled && value.get<bool>();
    } else if (field == "publisher") {
      const std::string publisher = text_field(value, field);
      if (publisher != "zmq" && publisher != "null")
        throw invalid("{}: publisher {} is not supported; use zmq, or null for none", kEventsConfig, quote(publisher));
      enabled = enabled && publisher == "zmq";
    } else if (field == "endpoint") {
      options.endpoint = text_field(value, field);
    } else if (field == "replay_endpoint") {
      options.replay_endpoint = text_field(value, field);
    } else if (field == "topic") {
      options.topic = text_field(value, field);
    } else if (field == "buffer_steps") {
      options.buffer_steps = static_cast<size_t>(count_field(value, field, 1, 10'000'000));
    } else if (field == "hwm") {
      options.hwm = static_cast<int>(count_field(value, field, 1, INT_MAX));
    } else if (field !=
               "max_queue_size") {  // nothing waits between the engine and the publisher for longer than a step
      throw invalid(
          "{} has no field {}; it has enable_kv_cache_events, publisher, endpoint, replay_endpoint, topic, "
          "buffer_steps, hwm and max_queue_size",
          kEventsConfig, quote(field));
    }
  }
  if (!enabled) return {};
  if (options.endpoint.empty()) options.endpoint = kOwnMachine;
  check_kv_endpoint(options.endpoint);
  if (!options.replay_endpoint.empty()) check_kv_endpoint(options.replay_endpoint);
  return options;
}

}  // namespace quire
