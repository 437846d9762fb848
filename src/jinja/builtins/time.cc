#include "jinja/builtins/time.h"

#include <cstdio>
#include <ctime>

#include "base/error.h"

namespace quire::jinja {
namespace {

std::tm broken_down(std::chrono::local_seconds time) {
  using namespace std::chrono;
  const auto day = floor<days>(time);
  const year_month_day date{day};
  const hh_mm_ss clock{time - day};
  std::tm tm{};
  tm.tm_year = static_cast<int>(date.year()) - 1900;
  tm.tm_mon = static_cast<int>(static_cast<unsigned>(date.month())) - 1;
  tm.tm_mday = static_cast<int>(static_cast<unsigned>(date.day()));
  tm.tm_hour = static_cast<int>(clock.hours().count());
  tm.tm_min = static_cast<int>(clock.minutes().count());
  tm.tm_sec = static_cast<int>(clock.seconds().count());
  tm.tm_wday = static_cast<int>(weekday{day}.c_encoding());
  tm.tm_yday = static_cast<int>((day - local_days{date.year() / January / 1}).count());
  return tm;
}

}  // namespace

std::string format_time(std::chrono::local_seconds time, std::string_view format) {
  if (format.size() > 1000)
    throw invalid("strftime_now: a format of {} bytes, at most 1000 are allowed", format.size());
  const std::tm tm = broken_down(time);
  std::string out;
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%' || at + 1 == format.size()) {
      out.push_back(format[at]);
      continue;
    }
    std::string directive = "%";
    while (++at < format.size() && std::string_view("-_0^#EO").find(format[at]) != std::string_view::npos)
      directive += format[at];
    if (at == format.size()) throw invalid("strftime_now: the format ends within '{}'", directive);
    const char letter = format[at];
    if (letter >= '1' && letter <= '9') throw invalid("strftime_now: widths are not supported");
    directive += letter;
    if (letter == 'f') {
      out += "000000";
    } else if (letter != 'z' && letter != 'Z') {  // empty without a time zone
      char buffer[256];
      out.append(buffer, std::strftime(buffer, sizeof(buffer), directive.c_str(), &tm));
    }
  }
  return out;
}

std::chrono::local_seconds parse_time(std::string_view iso) {
  using namespace std::chrono;
  const std::string text(iso);
  int y = 0, h = 0, min = 0, s = 0, used = 0;
  unsigned m = 0, d = 0;
  const int read = std::sscanf(text.c_str(), "%4d-%2u-%2u%*1[T ]%2d:%2d:%2d%n", &y, &m, &d, &h, &min, &s, &used);
  const year_month_day date{year{y}, month{m}, day{d}};
  if (read != 6 || static_cast<size_t>(used) != text.size() || !date.ok() || h < 0 || h > 23 || min < 0 || min > 59 ||
      s < 0 || s > 59)
    throw invalid("'{}' is not a time; write it as 2026-11-21T12:34:56", text);
  return local_days{date} + hours{h} + minutes{min} + seconds{s};
}

std::chrono::local_seconds local_now() {
  using namespace std::chrono;
  const std::time_t now = std::time(nullptr);
  std::tm tm{};
  localtime_r(&now, &tm);
  return local_days{year{tm.tm_year + 1900} / (tm.tm_mon + 1) / tm.tm_mday} + hours{tm.tm_hour} + minutes{tm.tm_min} +
         seconds{tm.tm_sec};
}

}  // namespace quire::jinja
