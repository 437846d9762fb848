// The web pages that --allowed-origins lets in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Patterns of origins. An origin is scheme://host or scheme://host:port, as browsers send it: lower case, without the
// scheme's own port. Patterns are read so that each can match: upper case, a slash or /* at the end and default ports
// are taken for what they mean.
//
//   *                          every page
//   null                       pages without an origin: files, sandboxed frames
//   https://*.example.org      all hosts below example.org, but not itself
//   https://app-*.example.org  a * within a label stands for letters of this label
//   http://localhost:*         every port
//   chrome-extension://*       all pages of this scheme, on every port
class AllowedOrigins {
 public:
  // Throws Error that names --allowed-origins and the value, if one is no pattern of origins: without a scheme, with a
  // path, a wrong port or characters that no origin has.
  explicit AllowedOrigins(const std::vector<std::string>& patterns);

  bool any() const { return any_; }
  // Whether all pages that http or https serves are allowed, or all of one of the two.
  bool any_site() const;
  // origin: of an Origin header.
  bool allows(std::string_view origin) const;
  // Whether pages that http or https serves from this host are allowed, on some port. name: lower case.
  bool allows_host(std::string_view name) const;

 private:
  struct Pattern {
    std::string scheme, host, port;  // lower case; port "": the scheme's own; "*" in all three: anything
  };
  static Pattern parse(const std::string& text);
  static bool is_of_web(const Pattern& pattern);

  bool any_ = false, null_ = false;
  std::vector<Pattern> patterns_;
};

}  // namespace quire
