#include "grammar/schema/json_formats.h"

#include <algorithm>
#include <iterator>

namespace quire::grammar {
namespace {

using std::string;

// RFC 3339: full-date, with the days that each month has.
string date() {
  const string leap = R"((?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00))";
  return R"((?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8])))" +
         ("|" + leap + "-02-29)");
}

// RFC 3339: full-time. Leap seconds are written in UTC.
string time() {
  return R"((?:(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d))"
         R"(|23:59:60(?:\.\d+)?(?:[Zz]|[+-]00:00)))";
}

// RFC 3339, appendix A.
string duration() {
  const string time = R"(T(?:\d+S|\d+M(?:\d+S)?|\d+H(?:\d+M(?:\d+S)?)?))";
  const string date = R"((?:\d+D|\d+M(?:\d+D)?|\d+Y(?:\d+M(?:\d+D)?)?))";
  return "P(?:\\d+W|" + time + "|" + date + "(?:" + time + ")?)";
}

// RFC 3986: IPv4address and IPv6address.
string ipv4() { return R"((?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3}))"; }
string ipv6() {
  const string h = "[0-9A-Fa-f]{1,4}", last = "(?:" + h + ":" + h + "|" + ipv4() + ")";
  const auto groups = [&](int n) { return "(?:(?:" + h + ":){0," + std::to_string(n) + "}" + h + ")?"; };
  return "(?:(?:" + h + ":){6}" + last + "|::(?:" + h + ":){5}" + last + "|(?:" + h + ")?::(?:" + h + ":){4}" + last +
         "|" + groups(1) + "::(?:" + h + ":){3}" + last + "|" + groups(2) + "::(?:" + h + ":){2}" + last + "|" +
         groups(3) + "::" + h + ":" + last + "|" + groups(4) + "::" + last + "|" + groups(5) + "::" + h + "|" +
         groups(6) + "::)";
}

// RFC 1123.
string hostname() {
  const string label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
  return "(?:(?=.{1,253}$)" + label + "(?:\\." + label + ")*)";
}

// RFC 5321: Mailbox, with the domain's length as in hostname.
string email() {
  const string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+", label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
  return "(?:" + atom + "(?:\\." + atom + R"()*|"(?:[ !#-\[\]-~]|\\[ -~])*")@(?:)" + label + "(?:\\." + label +
         ")*|\\[(?:" + ipv4() + "|IPv6:" + ipv6() + ")\\])";
}

// RFC 3986, appendix A.
string uri(bool reference) {
  const string pct = "%[0-9A-Fa-f]{2}", plain = "A-Za-z0-9._~!$&'()*+,;=\\-";
  const string pchar = "(?:[" + plain + ":@]|" + pct + ")", segments = "(?:/" + pchar + "*)*";
  const string host = "(?:\\[(?:" + ipv6() + "|v[0-9A-Fa-f]+\\.[" + plain + ":]+)\\]|(?:[" + plain + "]|" + pct + ")*)";
  const string authority = "//(?:(?:[" + plain + ":]|" + pct + ")*@)?" + host + "(?::\\d*)?" + segments;
  const string absolute = "/(?:" + pchar + "+" + segments + ")?";
  const string tail = "(?:\\?(?:" + pchar + "|[/?])*)?(?:#(?:" + pchar + "|[/?])*)?";
  const string full = "[A-Za-z][A-Za-z0-9+.-]*:(?:" + authority + "|" + absolute + "|" + pchar + "+" + segments + ")?";
  if (!reference) return full + tail;
  const string no_colon = "(?:[" + plain + "@]|" + pct + ")";
  return "(?:" + full + "|" + authority + "|" + absolute + "|" + no_colon + "+" + segments + ")?" + tail;
}

string json_pointer() { return R"((?:/(?:[^~/]|~[01])*)*)"; }

}  // namespace

string format_pattern(std::string_view name) {
  const string hex = "[0-9A-Fa-f]";
  if (name == "date") return date();
  if (name == "time") return time();
  if (name == "date-time") return date() + "[Tt]" + time();
  if (name == "duration") return duration();
  if (name == "email") return email();
  if (name == "hostname") return hostname();
  if (name == "ipv4") return ipv4();
  if (name == "ipv6") return ipv6();
  if (name == "uri") return uri(false);
  if (name == "uri-reference") return uri(true);
  if (name == "uuid") return hex + "{8}(?:-" + hex + "{4}){3}-" + hex + "{12}";
  if (name == "json-pointer") return json_pointer();
  if (name == "relative-json-pointer") return "(?:0|[1-9]\\d*)(?:#|" + json_pointer() + ")";
  return {};
}

bool is_refused_format(std::string_view name) {
  constexpr std::string_view kRefused[] = {"idn-email",     "idn-hostname", "iri",
                                           "iri-reference", "uri-template", "regex"};
  return std::ranges::find(kRefused, name) != std::end(kRefused);
}

}  // namespace quire::grammar
