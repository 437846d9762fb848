// links: trace
// Reads any bytes as a trace: either it is refused with an Error, or its times and counts are plausible. If the first byte is
// odd, the rest follows the header of a valid trace.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "trace/event_text.h"
#include "trace/trace_summary.h"

namespace {

void require(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int fd = memfd_create("trace", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  require(fd >= 0);
  if (size == 0) return 0;
  std::string text;
  if (*data & 1) quire::append_trace_header({.model = "m", .operations = true}, text);
  text.append(reinterpret_cast<const char*>(data) + 1, size - 1);
  require(ftruncate(fd, 0) == 0);
  require(pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  try {
    const quire::TraceSummary s = quire::summarize_trace(path, 2);
    for (const double time : {s.seconds, s.step_seconds, s.idle_seconds, s.wait_seconds, s.gap_seconds})
      require(std::isfinite(time) && time >= 0);
    require(s.slowest.size() <= 2 && s.slowest.size() <= s.steps);
    size_t steps = 0;
    for (const quire::StepKindTally& kind : s.kinds) steps += kind.times.count;
    require(steps == s.steps);
  } catch (const quire::Error&) {
  }
  return 0;
}
