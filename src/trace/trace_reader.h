// Reads the files of --trace-out event by event, also those that were cut off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/files/line_file.h"
#include "json/field.h"
#include "trace/event_text.h"
#include "trace/trace_format.h"

namespace quire {

struct TraceEvent {
  std::string name;  // printable ASCII
  std::string category;
  int process = 0;
  uint64_t track = 0;
  double began = 0, seconds = 0;  // since the trace began, and how long; instants take none
  std::optional<JsonField> arguments;

  // An argument from 0 to `most`; throws JsonError. The default lets a thousand million of them be added up.
  int64_t count(std::string_view key, int64_t most = 1'000'000'000) const;
};

// A string that may be shown on a terminal: printable ASCII. Otherwise throws JsonError.
const std::string& printable(const JsonField& field);

// The memory that it takes does not depend on the file's size.
class TraceReader {
 public:
  // Throws Error: the file cannot be read, is empty, no trace, or one of another program or version.
  explicit TraceReader(const std::string& path);

  const TraceHeader& header() const { return header_; }
  // The next event; nothing at the end. Names of tracks are left out. Throws Error that names the line: it is damaged.
  std::optional<TraceEvent> next();

  // Once next() has returned nothing:
  TraceEnd end() const { return end_; }
  const TraceLosses& losses() const { return losses_; }
  bool cut_inside_event() const { return cut_inside_event_; }  // with kMissing: a part of an event was left out

 private:
  bool next_line();

  std::string path_;
  LineFile file_;
  std::string line_, following_;
  bool has_following_ = false;
  int number_ = 0;  // of line_
  TraceHeader header_;
  TraceEnd end_ = TraceEnd::kMissing;
  TraceLosses losses_;
  bool cut_inside_event_ = false;
};

}  // namespace quire
