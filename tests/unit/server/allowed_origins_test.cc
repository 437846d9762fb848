#include "server/http/allowed_origins.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace quire {
namespace {

struct Pattern {
  std::string text;
  std::vector<std::string> matches, others;
};

TEST(AllowedOrigins, PatternsMatchTheOriginsThatTheyDescribe) {
  const std::vector<Pattern> patterns = {
      {"*", {"https://a.example", "http://x:1", "null", "chrome-extension://abc"}, {}},
      {"https://chat.example.org",
       {"https://chat.example.org", "https://chat.example.org:443"},
       {"http://chat.example.org", "https://chat.example.org:8443", "https://a.chat.example.org", "https://example.org",
        "https://chat.example.org.evil.example", "chat.example.org", "null", ""}},
      // Spellings that no browser sends.
      {"HTTPS://Chat.Example.ORG/", {"https://chat.example.org"}, {"http://chat.example.org"}},
      {"https://chat.example.org/*", {"https://chat.example.org"}, {"https://chat.example.org:1"}},
      {"https://chat.example.org:443", {"https://chat.example.org"}, {"https://chat.example.org:80"}},
      {"http://chat.example.org:80/", {"http://chat.example.org"}, {"https://chat.example.org"}},
      {"http://[0:0::1]:3000", {"http://[::1]:3000"}, {"http://[::1]", "http://[::2]:3000"}},
      // Stars.
      {"http://localhost:*",
       {"http://localhost", "http://localhost:3000"},
       {"https://localhost", "http://localhost.evil.example"}},
      {"https://*.example.org",
       {"https://a.example.org", "https://a.b.example.org"},
       {"https://example.org", "https://.example.org", "https://evilexample.org", "https://a.example.org.evil.example",
        "https://a.example.org:1", "http://a.example.org"}},
      {"https://app-*.example.org",
       {"https://app-17.example.org", "https://app-.example.org"},
       {"https://app-1.evil.example.org", "https://xapp-1.example.org", "https://app-1.example.com"}},
      {"https://*-a-*.example.org", {"https://x-a-a-y.example.org"}, {"https://xa-y.example.org"}},
      {"chrome-extension://*",
       {"chrome-extension://abcdefgh", "chrome-extension://x:1"},
       {"moz-extension://abcdefgh", "https://x"}},
      {"http://*:3000", {"http://a.example:3000", "http://[::1]:3000"}, {"http://a.example", "https://a.example:3000"}},
      {"*://chat.example.org",
       {"http://chat.example.org", "https://chat.example.org", "app://chat.example.org"},
       {"http://example.org"}},
      {"null", {"null"}, {"https://a.example"}},
      {"file://*", {"file://"}, {"null", "https://a.example"}},
  };
  for (const Pattern& pattern : patterns) {
    const AllowedOrigins allowed({pattern.text});
    for (const std::string& origin : pattern.matches)
      EXPECT_TRUE(allowed.allows(origin)) << pattern.text << ' ' << origin;
    for (const std::string& origin : pattern.others)
      EXPECT_FALSE(allowed.allows(origin)) << pattern.text << ' ' << origin;
  }
}

TEST(AllowedOrigins, RefuseWhatCanNeverMatch) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"chat.example.org", "as in https://chat.example.org"},
      {"localhost:3000", "as in http://localhost:3000"},
      {"*.example.org", "as in https://*.example.org"},
      {"https:/chat.example.org", "begins with a scheme"},
      {"https://chat.example.org/app", "has no path"},
      {"https://chat.example.org/?x", "has no path"},
      {"https://chat.example.org#x", "has no path"},
      {"https://user:pw@chat.example.org", "has no user"},
      {"https://", "https://* allows all pages of the scheme"},
      {"https://:8080", "names no host"},
      {"https://chat.example.org:99999", "is not a port"},
      {"https://chat.example.org:80a", "is not a port"},
      {"https://chat.example.org:", "is not a port"},
      {"http://::1", "is not a port"},
      {"http://[::1", "not an IPv6 address"},
      {"http://[::g]", "not an IPv6 address"},
      {"https://.*\\.example\\.org", "a host has no"},
      {"ht tp://x", "is not a scheme"},
      {"https://b\xC3\xBC"
       "cher.example",
       "xn--"},
      {"", "begins with a scheme"},
  };
  for (const auto& [text, part] : wrong) {
    try {
      const AllowedOrigins allowed({"https://right.example", text});
      ADD_FAILURE() << text << " was accepted";
    } catch (const Error& e) {
      const std::string message = e.what();
      EXPECT_TRUE(message.starts_with("--allowed-origins \"")) << message;
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
  }
}

// The host of an extension's pages is no name that this server could be asked by.
TEST(AllowedOrigins, OnlySitesGiveNamesToTheServer) {
  const AllowedOrigins allowed(
      {"https://*.example.org", "http://chat.example:*", "chrome-extension://*", "app://x.example"});
  EXPECT_TRUE(allowed.allows_host("a.example.org") && allowed.allows_host("chat.example"));
  EXPECT_FALSE(allowed.allows_host("example.org") || allowed.allows_host("evil.example") ||
               allowed.allows_host("x.example"));
  EXPECT_FALSE(allowed.allows_host(""));
  EXPECT_FALSE(allowed.any_site());
  EXPECT_TRUE(AllowedOrigins({"https://*"}).any_site());
}

}  // namespace
}  // namespace quire
