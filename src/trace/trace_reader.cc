#include "trace/trace_reader.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/text/quote.h"

namespace quire {
namespace {

constexpr size_t kLongestEvent = size_t{1} << 20;
constexpr int64_t kMostCounted = std::numeric_limits<int64_t>::max();
constexpr double kLongestTrace = 1e15;  // microseconds: thirty years

Error not_ours(const std::string& path, std::string_view why) {
  return invalid("{} is not a trace of Quire: {}; write one with `quire serve --trace-out FILE`", quote(path), why);
}

// A line without the comma after its event.
std::string_view event_in(std::string_view line) {
  while (!line.empty() && (line.back() == ',' || line.back() == ' ' || line.back() == '\r')) line.remove_suffix(1);
  return line;
}

TraceHeader read_header(const JsonField& event) {
  const JsonField arguments = event.at("args");
  if (const auto version = arguments.at("version").integer(0, kMostCounted); version != kTraceVersion)
    throw event.error("a trace of version {}, but this Quire reads version {}", version, kTraceVersion);
  return {.model = arguments.get<std::string>("model"),
          .kernels = printable(arguments.at("kernels")),
          .activations = printable(arguments.at("activations")),
          .threads = arguments.get<int32_t>("threads"),
          .started = arguments.get<int64_t>("started_us"),
          .operations = arguments.get<bool>("operations")};
}

TraceEnd read_end(const JsonField& field) {
  const auto known = std::ranges::find(kTraceEndNames, field.string());
  if (known == kTraceEndNames.end()) throw field.error("must be closed or limit, not {}", quote(field.string()));
  return static_cast<TraceEnd>(known - kTraceEndNames.begin());
}

}  // namespace

const std::string& printable(const JsonField& field) {
  const std::string& text = field.string();
  if (!std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7f; }))
    throw field.error("must be printable ASCII, not {}", quote(text));
  return text;
}

int64_t TraceEvent::count(std::string_view key, int64_t most) const {
  if (!arguments) throw invalid("the event {} of the trace lacks its arguments", quote(name));
  return arguments->at(key).integer(0, most);
}

TraceReader::TraceReader(const std::string& path) : path_(path), file_(path, path) {
  if (!next_line()) throw invalid("{} is empty: it is no trace, or nothing was written to it", quote(path));
  if (line_ != "[") throw not_ours(path, "it does not begin with a JSON array of events");
  if (!next_line()) throw not_ours(path, "it has no events");
  const auto header = [&]() -> std::optional<JsonField> {
    try {
      return JsonField::parse(event_in(line_), fmt::format("{}:{}", path_, number_));
    } catch (const JsonError&) {
      return std::nullopt;
    }
  }();
  if (!header) throw not_ours(path, "its first event is cut off, or no JSON");
  if (!header->json().is_object() || !header->has("name") || header->json()["name"] != kTraceHeaderName)
    throw not_ours(path, "its first event is another program's");
  header_ = read_header(*header);
}

// One line is read ahead: only the last one may be cut off.
bool TraceReader::next_line() {
  if (!has_following_ && number_ == 0) has_following_ = file_.next(following_, kLongestEvent);
  if (!has_following_) return false;
  line_.swap(following_);
  ++number_;
  has_following_ = file_.next(following_, kLongestEvent);
  return true;
}

std::optional<TraceEvent> TraceReader::next() {
  while (next_line()) {
    const std::string_view text = event_in(line_);
    if (text.empty()) continue;
    if (text == "]") {
      if (has_following_) throw invalid("{}:{}: the trace ends here, but the file goes on", path_, number_);
      return std::nullopt;
    }
    const std::string where = fmt::format("{}:{}", path_, number_);
    const auto event = [&]() -> std::optional<JsonField> {
      try {
        return JsonField::parse(text, where);
      } catch (const JsonError&) {
        if (has_following_) throw;
        return std::nullopt;
      }
    }();
    if (!event) {
      cut_inside_event_ = true;
      return std::nullopt;
    }
    if (end_ != TraceEnd::kMissing) throw event->error("follows the end of the trace");
    const std::string& phase = event->at("ph").string();
    const JsonField name_field = event->at("name");
    const std::string& name = name_field.string();
    if (phase == "M" && name == kTraceEndName) {
      const JsonField arguments = event->at("args");
      const auto count = [&](std::string_view key) {
        return static_cast<uint64_t>(arguments.at(key).integer(0, kMostCounted));
      };
      losses_ = {count("lost_steps"), count("lost_operations"), count("lost_answers")};
      end_ = read_end(arguments.at("end"));
      continue;
    }
    if (phase == "M") continue;
    TraceEvent out{.name = printable(name_field), .category = event->at("cat").string()};
    out.process = event->get<int32_t>("pid");
    out.track = static_cast<uint64_t>(event->at("tid").integer(0, kMostCounted));
    out.began = event->at("ts").number(0, kLongestTrace) * 1e-6;
    if (phase == "X") out.seconds = event->at("dur").number(0, kLongestTrace) * 1e-6;
    out.arguments = event->find("args");
    return out;
  }
  return std::nullopt;
}

}  // namespace quire
