// The page of an audit: what is found is on it, its elements close, and a name from the file can neither end nor begin one.
#include <algorithm>

#include <gmock/gmock.h>

#include "stepzero/kernels/fill.hpp"
#include "stepzero/report/audit.hpp"
#include "tests/hostile/safetensors_fixture.hpp"
#include "tests/unit/audit_fixture.hpp"

namespace stepzero {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::Not;

// Elements in the order in which they open; fails where one does not close.
std::vector<std::string> elements(const std::string& html) {
  const std::vector<std::string> alone = {"!doctype", "meta", "link"};
  std::vector<std::string> open, all;
  for (std::size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const std::size_t end = html.find('>', at);
    EXPECT_NE(end, std::string::npos);
    const std::string tag = html.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(0, tag.find(' '));
    if (name.starts_with('/')) {
      EXPECT_FALSE(open.empty());
      EXPECT_EQ(open.empty() ? "" : open.back(), name.substr(1));
      if (!open.empty()) open.pop_back();
      continue;
    }
    all.push_back(name);
    if (!tag.ends_with('/') && std::ranges::find(alone, name) == alone.end()) open.push_back(name);
  }
  EXPECT_TRUE(open.empty());
  return all;
}

std::size_t count_of(const std::vector<std::string>& list, const std::string& name) {
  return static_cast<std::size_t>(std::ranges::count(list, name));
}

TEST(AuditHtml, FindingsAndARowForEveryTensor) {
  const Scratch scratch;
  const Small m = small_gpt2("gpt2");
  Weights w = m.draw(3);
  for (auto& [name, numbers] : w) {
    if (!name.ends_with("c_proj.weight")) continue;
    for (float& x : numbers) x *= std::sqrt(6.0F);
  }
  const auto files = CheckpointFiles::open(m.write(scratch, w));
  ASSERT_TRUE(files);
  AuditOptions options;
  options.model = m.a;
  options.baseline = &*files;
  const auto a = audit(*files, options);
  ASSERT_TRUE(a);
  ASSERT_FALSE(a->findings.empty());
  const std::string html = audit_html(*a);
  const auto all = elements(html);
  EXPECT_EQ(count_of(all, "script"), 0U);
  EXPECT_EQ(count_of(all, "li"), a->findings.size());
  for (const Finding& f : a->findings) EXPECT_THAT(html, HasSubstr(f.id));
  for (const TensorVerdict& v : a->tensors) EXPECT_THAT(html, HasSubstr(v.census.tensor->name));
  const auto histograms = std::ranges::count_if(a->tensors, [](const TensorVerdict& v) { return !v.census.whole.constant(); });
  EXPECT_EQ(count_of(all, "svg"), static_cast<std::size_t>(histograms));
  EXPECT_THAT(html, HasSubstr("What follows"));
  EXPECT_THAT(html, HasSubstr("the same bits"));
  // moments alone have no histogram
  options.moments_only = true;
  const auto fast = audit(*files, options);
  ASSERT_TRUE(fast);
  EXPECT_EQ(count_of(elements(audit_html(*fast)), "svg"), 0U);
}

TEST(AuditHtml, NamesFromTheFileAreText) {
  const Scratch scratch;
  const std::vector<std::string> names = {"</td></table><script>alert(1)</script>", R"(\"><img src=x onerror=alert(2)>)",
                                          "a&amp;\xE2\x80\xAE"
                                          "b",
                                          "it's <!-- not", "</style></head>"};
  std::string header = "{", data;
  for (const std::string& name : names) {
    std::vector<float> x(64);
    fill(Distribution::normal(1), make_stream(1, name), 0, std::span<float>(x));
    x[3] = NAN;  // a finding that tells the name
    header += (data.empty() ? "" : ",") + entry(name, "F32", "8,8", fmt::format("{},{}", data.size(), data.size() + 256));
    data.append(reinterpret_cast<const char*>(x.data()), 256);
  }
  const auto files = CheckpointFiles::open(scratch.put("m.safetensors", safetensors_bytes(header + "}", data)));
  ASSERT_TRUE(files) << files.error().message;
  const auto a = audit(*files, {});
  ASSERT_TRUE(a);
  const std::string html = audit_html(*a);
  const auto all = elements(html);
  EXPECT_EQ(count_of(all, "script") + count_of(all, "img"), 0U);
  EXPECT_EQ(count_of(all, "style"), 1U);
  EXPECT_THAT(html, Not(HasSubstr("<!--")));
  EXPECT_THAT(html, Not(HasSubstr("\xE2\x80\xAE")));
  EXPECT_THAT(html, HasSubstr("a&amp;amp;\\u{202E}b"));
  EXPECT_THAT(html, HasSubstr("&lt;/td&gt;&lt;/table&gt;&lt;script&gt;alert(1)&lt;/script&gt;"));
}

}  // namespace
}  // namespace stepzero
