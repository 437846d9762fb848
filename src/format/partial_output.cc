#include "format/partial_output.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/checksum.h"
#include "base/files/mapped_file.h"
#include "base/files/write_all.h"
#include "json/field.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr int kJournalVersion = 1;
constexpr const char* kJournalMark = "quire_journal";
constexpr const char* kJournaledContent[] = {"output", "importance.gguf", "types.json", "rotated"};

// On one line. What is not UTF-8 is replaced: names of tensors and of models are anything.
std::string dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string spell(const Json* value) {
  return value ? (value->is_string() ? value->get<std::string>() : dump(*value)) : "not given";
}

const Json* member(const Json& object, const std::string& key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

// "--type was Q4_0 and is Q5_0 now"
std::string difference_of(const Json& before, const Json& now) {
  std::vector<std::string> keys, differences;
  for (const Json* order : {&before, &now}) {
    for (const auto& [key, value] : order->items()) {
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
    }
  }
  for (const std::string& key : keys) {
    const Json *a = member(before, key), *b = member(now, key);
    if (a && b && *a == *b) continue;
    if (a || b) differences.push_back(fmt::format("{} was {} and is {} now", key, spell(a), spell(b)));
  }
  return fmt::format("{}", fmt::join(differences, "; "));
}

struct Journal {
  Json order;
  std::map<std::string, PartialOutput::Part, std::less<>> parts;
};

PartialOutput::Part part_of(const JsonField& line) {
  PartialOutput::Part part;
  part.checksums = line.get<std::vector<uint64_t>>("checksums");
  part.facts = line.at("facts").object().json();
  return part;
}

// text: whole lines. Throws Error if it is damaged.
Journal parse(std::string_view text, const std::string& file) {
  Journal journal;
  bool is_first = true;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const JsonField line = JsonField::parse(text.substr(0, end), file);
    text.remove_prefix(end + 1);
    if (std::exchange(is_first, false)) {
      line.object().at(kJournalMark).integer(kJournalVersion, kJournalVersion);
      journal.order = line.at("order").object().json();
    } else {
      journal.parts[line.object().get<std::string>("part")] = part_of(line);
    }
  }
  return journal;
}

}  // namespace

PartialOutput::PartialOutput(const fs::path& output, const Json& order, bool start_over)
    : folder_(output.string() + ".partial") {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(folder_, error);
  const bool is_ours = fs::is_directory(status) && (fs::exists(journal(), error) || fs::is_empty(folder_, error));
  if (fs::exists(status) && !is_ours)
    throw invalid("{} is there already, and no interrupted run has left it; move it away", folder_.string());
  if (!fs::exists(status) && !fs::create_directory(folder_, error))
    throw invalid("{} cannot be written: {}", folder_.string(), error.message());
  lock();
  try {
    read(Json::parse(dump(order)), start_over);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

PartialOutput::~PartialOutput() {
  if (descriptor_ < 0) return;
  try {
    if (is_empty()) finish();
  } catch (const std::exception&) {  // then it is left
  }
  if (descriptor_ >= 0) ::close(descriptor_);
}

fs::path PartialOutput::journal() const { return folder_ / "journal.jsonl"; }
fs::path PartialOutput::output() const { return folder_ / "output"; }
fs::path PartialOutput::importance() const { return folder_ / "importance.gguf"; }
fs::path PartialOutput::types() const { return folder_ / "types.json"; }
fs::path PartialOutput::rotated() const { return folder_ / "rotated"; }

void PartialOutput::lock() {
  descriptor_ = ::open(journal().c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw invalid("{} cannot be written: {}", journal().string(), std::strerror(errno));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
  ::close(descriptor_);
  throw invalid("another process works on {}; wait until it is done, or choose another name for the output",
                folder_.string());
}

void PartialOutput::read(const Json& order, bool start_over) {
  const std::string text = read_text_file(journal());
  const size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  if (whole == 0) return begin(order);
  std::optional<Journal> found;
  try {
    found = parse(std::string_view(text).substr(0, whole), journal().string());
  } catch (const Error& error) {
    warning_ = fmt::format("{}; what is in {} is dropped, and the run starts over", error.what(), folder_.string());
  }
  const bool is_same = found && found->order == order;
  if (found && !is_same && !start_over)
    throw invalid(
        "{} was left by a run of another kind: {}; give the same flags and files again, or start over with --force",
        folder_.string(), difference_of(found->order, order));
  if (!is_same) return begin(order);
  if (::ftruncate(descriptor_, static_cast<off_t>(whole)) != 0)
    throw no_resource("{} could not be written: {}", journal().string(), std::strerror(errno));
  parts_ = std::move(found->parts);
}

void PartialOutput::begin(const Json& order) {
  remove_content();
  if (::ftruncate(descriptor_, 0) != 0)
    throw no_resource("{} could not be written: {}", journal().string(), std::strerror(errno));
  Json line;
  line[kJournalMark] = kJournalVersion;
  line["order"] = order;
  append(dump(line));
}

void PartialOutput::append(const std::string& line) {
  if (const int reason = write_all(descriptor_, line + "\n"); reason != 0)
    throw no_resource("{} could not be written: {}", journal().string(), std::strerror(reason));
}

const PartialOutput::Part* PartialOutput::find(std::string_view name) const {
  const auto found = parts_.find(name);
  return found == parts_.end() ? nullptr : &found->second;
}

void PartialOutput::add(const std::string& name, Part part) {
  Json line;
  line["part"] = name;
  line["checksums"] = part.checksums;
  line["facts"] = part.facts;
  append(dump(line));
  parts_[name] = std::move(part);
}

void PartialOutput::add_file(const fs::path& file) {
  const MappedFile content(file);
  add(file.filename(), {{checksum(content.bytes())}, Json::object()});
}

bool PartialOutput::has_file(const fs::path& file) const {
  const Part* const part = find(file.filename().string());
  std::error_code error;
  if (!part || !fs::exists(file, error)) return false;
  return part->checksums == std::vector{checksum(MappedFile(file).bytes())};
}

// Only what runs put there, whole or unfinished: the folder could have been given other files since.
void PartialOutput::remove_content() const {
  std::error_code error;
  std::vector<fs::path> ours;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (std::ranges::any_of(kJournaledContent, [&](const char* begin) { return name.starts_with(begin); }))
      ours.push_back(at->path());
  }
  for (const fs::path& path : ours) {
    if (!error) fs::remove_all(path, error);
  }
  if (error) throw invalid("{} cannot be removed: {}", folder_.string(), error.message());
}

void PartialOutput::finish() {
  remove_content();
  std::error_code ignored;
  fs::remove(journal(), ignored);
  fs::remove(folder_, ignored);
  ::close(std::exchange(descriptor_, -1));
}

}  // namespace quire
