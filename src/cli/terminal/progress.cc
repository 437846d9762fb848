#include "cli/terminal/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace quire {
namespace {

constexpr auto kRepaint = std::chrono::milliseconds(100);
constexpr double kLeastElapsed = 1;  // seconds before the time left is estimated

size_t columns(int descriptor) {
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

std::string duration(double seconds) {
  const int64_t s = std::llround(seconds);
  if (s < 100) return fmt::format("{} s", s);
  return s < 6000 ? fmt::format("{} min", (s + 30) / 60) : fmt::format("{:.1f} h", seconds / 3600);
}

}  // namespace

Progress::Progress(int descriptor) : descriptor_(descriptor), terminal_(isatty(descriptor) != 0) {}

Progress::~Progress() { clear(); }

void Progress::stage(std::string name) {
  stage_ = std::move(name);
  began_ = Clock::now();
  paint(stage_ + " ...");
}

void Progress::step(size_t done, size_t total, std::string_view note) {
  if (!is_due()) return;
  std::string line = fmt::format("{}: {} of {}{}", stage_, done, total, time_left(done, total));
  if (!note.empty()) line += fmt::format("; {}", note);
  paint(std::move(line));
}

void Progress::step_bytes(size_t done, size_t total) {
  if (is_due()) paint(fmt::format("{}: {} of {} MiB{}", stage_, done >> 20, total >> 20, time_left(done, total)));
}

void Progress::transfer(size_t done, size_t total, double rate) {
  if (!is_due()) return;
  std::string line = fmt::format("{}: {} of {} MiB", stage_, done >> 20, total >> 20);
  if (rate > 0) line += fmt::format(", {:.1f} MB/s", rate / 1e6);
  if (rate > 0 && done < total) line += fmt::format(", {} left", duration(static_cast<double>(total - done) / rate));
  paint(std::move(line));
}

bool Progress::is_due() const { return terminal_ && Clock::now() - painted_ >= kRepaint; }

std::string Progress::time_left(size_t done, size_t total) const {
  const double elapsed = std::chrono::duration<double>(Clock::now() - began_).count();
  if (done == 0 || done >= total || elapsed < kLeastElapsed) return "";
  return fmt::format(", {} left", duration(elapsed / static_cast<double>(done) * static_cast<double>(total - done)));
}

void Progress::clear() {
  if (!std::exchange(shown_, false)) return;
  if (write(descriptor_, "\r\x1b[K", 4) < 0) return;  // the terminal is gone
}

void Progress::paint(std::string line) {
  if (!terminal_) return;
  size_t end = std::min(line.size(), columns(descriptor_) - 1);  // a wrapped line could not be erased
  while (end < line.size() && end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;
  line = "\r\x1b[K" + line.substr(0, end);
  if (write(descriptor_, line.data(), line.size()) < 0) return;
  shown_ = true;
  painted_ = Clock::now();
}

}  // namespace quire
