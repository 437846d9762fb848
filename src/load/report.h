// What a load run measured, and what that comes to.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace quire {

// All times in seconds since the run's start.
struct RequestRecord {
  int planned_input = 0, planned_output = 0;
  double intended = 0;  // when it was to be sent
  double sent = 0;
  double finished = 0;
  std::vector<double> pieces;        // when each piece of the answer came; usually a token each
  int input_tokens = 0;              // by the server's usage, else as planned
  int output_tokens = 0;             // by the server's usage, else the pieces
  std::optional<int> cached_tokens;  // of the prompt, where the server says so
  std::string failure;               // why it did not complete; empty: it did
};

// Limits in seconds; a request is good when it completed within all that are given.
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

// Percentiles are the smallest sample that at least that share of all samples does not exceed.
Spread spread_of(std::vector<double> samples);

enum class CacheState { kCold, kWarm, kAny };

struct LoadReport {
  int requests = 0, completed = 0, failed = 0;
  std::map<std::string, int> failures;  // by reason
  double seconds = 0;                   // from the first request's time to the last answer's end
  int64_t input_tokens = 0, output_tokens = 0, pieces = 0;
  std::optional<int64_t> cached_tokens;  // none: no answer said
  Spread ttft;                           // from the intended time to the first piece
  Spread tpot;                           // of each request: from the first to the last piece, over the tokens between
  Spread itl;                            // between pieces, of all requests
  Spread e2e;                            // from the intended time to the answer's end
  Spread late;                           // from the intended time to the sending: the load tool's own delay
  std::optional<int> good;               // requests within the service level, where one is given
  std::optional<std::string> cache_violation;  // the run was not as cold or warm as it was declared
  int cache_unverified =
      0;  // completed requests of a run declared cold or warm whose answers do not say what was cached

  bool passed() const { return failed == 0 && !cache_violation; }
};

// `shared_prefix`: tokens that a warm prompt has in the cache.
LoadReport summarize(const std::vector<RequestRecord>& records, const ServiceLevel& level, CacheState declared,
                     int shared_prefix);

// Times in milliseconds.
nlohmann::ordered_json to_json(const LoadReport& report);
std::string to_text(const LoadReport& report);

}  // namespace quire
