// The verb claims as a user meets it: its JSON, its exit codes, its complaints.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/hostile/program.hpp"

namespace stepzero::testing {
namespace {

Result run(const std::vector<std::string>& args) {
  const Scratch scratch;
  return run(args, scratch, 120);
}

TEST(ClaimsVerb, PrintsTheContractsJson) {
  const Result r = run({"claims", "pe-norm", "--json"});
  EXPECT_EQ(r.code, 0) << r.err;
  const auto json = nlohmann::json::parse(r.out);
  EXPECT_EQ(json["schema"], "stepzero.claims/1");
  ASSERT_EQ(json["claims"].size(), 1U);
  const auto& claim = json["claims"][0];
  EXPECT_EQ(claim["id"], "pe-norm");
  EXPECT_EQ(claim["verdict"], "fails");
  for (const char* key : {"source", "statement", "condition", "correction"}) EXPECT_TRUE(claim[key].is_string()) << key;
  for (const char* key : {"predicted", "measured", "stderr"}) EXPECT_TRUE(claim[key].is_number()) << key;
}

TEST(ClaimsVerb, ShowsOneClaimWithItsReasonsAndAPlot) {
  const Result r = run({"claims", "relu-half"});
  EXPECT_EQ(r.code, 0) << r.err;
  for (const char* part : {"relu-half: holds if", "Tested", "Holds if", "Why", "counter-case", "settings", "+-----"})
    EXPECT_NE(r.out.find(part), std::string::npos) << part << "\n" << r.out;
}

TEST(ClaimsVerb, ExitsWithOneWhenAVerdictIsNotTheRecordedOne) {
  const Result r = run({"claims", "relu-half", "--set", "factor=0.3"});
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.out.find("relu-half: fails"), std::string::npos);
  EXPECT_NE(r.out.find("The recorded verdict is another: holds if."), std::string::npos);
}

TEST(ClaimsVerb, AnotherSeedIsAnotherDrawWithTheSameVerdict) {
  const Result one = run({"claims", "relu-half", "--seed", "1"}), two = run({"claims", "relu-half", "--seed", "2"}),
               again = run({"claims", "relu-half", "--seed", "2", "--threads", "1"});
  EXPECT_EQ(one.code, 0);
  EXPECT_EQ(two.code, 0);
  EXPECT_NE(one.out, two.out);
  EXPECT_EQ(two.out, again.out);
}

TEST(ClaimsVerb, WritesItsDocument) {
  const Scratch scratch;
  Program program({"claims", "pe-norm", "--markdown", scratch.path("docs")}, scratch);
  EXPECT_EQ(program.wait(60), 0) << program.err();
  EXPECT_NE(scratch.get("docs/claims.md").find("## pe-norm: fails"), std::string::npos);
  EXPECT_TRUE(scratch.get("docs/figures/claims-pe-norm.svg").ends_with("</svg>\n"));
}

TEST(ClaimsVerb, SaysWhatIsWrong) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"claims", "pe-nrom"}, "unknown claim \"pe-nrom\"; did you mean pe-norm?"},
      {{"claims", "pe-norm", "--set", "widht=3"}, "claim pe-norm has no such setting"},
      {{"claims", "pe-norm", "--set", "positions"}, "expected key=value"},
      {{"claims", "pe-norm", "--set", "positions=0"}, "\"0\" is not a whole number from 1 to 100000"},
      {{"claims", "pe-norm", "--set", "positions=1.5"}, "is not a whole number"},
      {{"claims", "pe-norm", "--set", "positions=nan"}, "is not a whole number"},
      {{"claims", "relu-half", "--set", "draws=1"}, "is not a whole number from 2"},
      {{"claims", "--set", "positions=5"}, "expected CLAIM.key=value"},
      {{"claims", "--set", "pe-nrom.positions=5"}, "unknown claim"},
      {{"claims", "\x1b[31m"}, "unknown claim \"\\u{1B}[31m\""},
      {{"claims", "pe-norm", "--markdown", "/dev/null/x"}, "/dev/null/x"},
  };
  for (const auto& [args, message] : cases) {
    const Result r = run(args);
    EXPECT_EQ(r.code, 2) << args[1];
    EXPECT_NE(r.err.find(message), std::string::npos) << r.err;
    EXPECT_TRUE(r.out.empty()) << r.out;
  }
}

}  // namespace
}  // namespace stepzero::testing
