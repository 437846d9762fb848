// Statistics of a load run: latencies, throughput, goodput.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "load/request_record.h"

namespace quire {

// Limits in seconds. A completed request is good if it meets all that are set.
struct ServiceLevel {
  std::optional<double> ttft, tpot, e2e;
  bool given() const { return ttft || tpot || e2e; }
};

// "ttft=500ms,tpot=50ms,e2e=10s". Throws Error.
ServiceLevel parse_service_level(const std::string& text);

struct Spread {
  size_t samples = 0;
  double mean = 0, p50 = 0, p95 = 0, p99 = 0, max = 0;  // seconds
};

// Percentiles by nearest rank: the smallest sample that at least this share of all samples does not exceed.
Spread spread_of(std::vector<double> samples);

// What a run declares about the server's prefix cache.
enum class CacheState { kCold, kWarm, kAny };

struct LoadReport {
  int requests = 0, completed = 0, failed = 0;
  std::map<std::string, int> failures;  // by reason
  double seconds = 0;                   // from the first intended time to the end of the last answer
  int64_t input_tokens = 0, output_tokens = 0, pieces = 0;
  std::optional<int64_t> cached_tokens;        // empty: no answer reported them
  Spread ttft;                                 // from the intended time to the first piece
  Spread tpot;                                 // per request: first to last piece, divided by the tokens between
  Spread itl;                                  // between pieces, of all requests
  Spread e2e;                                  // from the intended time to the end of the answer
  Spread late;                                 // from the intended time to the sending: the load generator's own delay
  std::optional<int> good;                     // requests that met the service level, if one is set
  std::optional<std::string> cache_violation;  // why the run was not as cold or warm as declared
  int cache_unverified = 0;  // declared cold or warm: completed requests whose answers do not report cached tokens

  bool passed() const { return failed == 0 && !cache_violation; }
};

// `shared_prefix`: tokens that a warm prompt must find in the cache.
LoadReport summarize(const std::vector<RequestRecord>& records, const ServiceLevel& level, CacheState declared,
                     int shared_prefix);

// Times in milliseconds.
nlohmann::ordered_json to_json(const LoadReport& report);
std::string to_text(const LoadReport& report);  // aligned, within 80 columns unless a failure's reason is longer

}  // namespace quire
