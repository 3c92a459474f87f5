// Presets against the published exact numbers of parameters (safetensors metadata of the released checkpoints, papers and
// model cards); a tied head counts once. Of Gemma 3 from 4b on, the text model without its image encoder; of GLM-4.5 without the block
// that predicts further tokens; of BART with the constant bias of its logits.
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "stepzero/models/build.hpp"
#include "stepzero/models/family.hpp"
#include "stepzero/models/family_file.hpp"
#include "stepzero/models/model.hpp"

namespace stepzero {
namespace {

const std::map<std::string, Index>& known() {
  static const std::map<std::string, Index> table = {
      {"gpt2", 124'439'808},
      {"gpt2-medium", 354'823'168},
      {"gpt2-large", 774'030'080},
      {"gpt2-xl", 1'557'611'200},
      {"bert-base", 109'514'298},
      {"bert-large", 335'174'458},
      {"roberta-base", 124'697'433},
      {"roberta-large", 355'412'057},
      {"tinyllama-1.1b", 1'100'048'384},
      {"llama-2-7b", 6'738'415'616},
      {"llama-2-13b", 13'015'864'320},
      {"llama-2-70b", 68'976'648'192},
      {"llama-3-8b", 8'030'261'248},
      {"llama-3-70b", 70'553'706'496},
      {"llama-3-405b", 405'853'388'800},
      {"llama-3.2-1b", 1'235'814'400},
      {"llama-3.2-3b", 3'212'749'824},
      {"mistral-7b", 7'241'732'096},
      {"mixtral-8x7b", 46'702'792'704},
      {"mixtral-8x22b", 140'630'071'296},
      {"qwen2.5-0.5b", 494'032'768},
      {"qwen2.5-1.5b", 1'543'714'304},
      {"qwen2.5-3b", 3'085'938'688},
      {"qwen2.5-7b", 7'615'616'512},
      {"qwen2.5-14b", 14'770'033'664},
      {"qwen2.5-32b", 32'763'876'352},
      {"qwen2.5-72b", 72'706'203'648},
      {"qwen3-0.6b", 596'049'920},
      {"qwen3-1.7b", 1'720'574'976},
      {"qwen3-4b", 4'022'468'096},
      {"qwen3-8b", 8'190'735'360},
      {"qwen3-14b", 14'768'307'200},
      {"qwen3-32b", 32'762'123'264},
      {"gemma-2b", 2'506'172'416},
      {"gemma-7b", 8'537'680'896},
      {"gemma-2-2b", 2'614'341'888},
      {"gemma-2-9b", 9'241'705'984},
      {"gemma-2-27b", 27'227'128'320},
      {"gemma-3-1b", 999'885'952},
      {"gemma-3-4b", 3'880'263'168},
      {"gemma-3-12b", 11'766'034'176},
      {"gemma-3-27b", 27'009'346'304},
      {"phi-1.5", 1'418'270'720},
      {"phi-2", 2'779'683'840},
      {"phi-3-mini", 3'821'079'552},
      {"phi-3-medium", 13'960'238'080},
      {"phi-4", 14'659'507'200},
      {"pythia-70m", 70'426'624},
      {"pythia-160m", 162'322'944},
      {"pythia-410m", 405'334'016},
      {"pythia-1b", 1'011'781'632},
      {"pythia-1.4b", 1'414'647'808},
      {"pythia-2.8b", 2'775'208'960},
      {"pythia-6.9b", 6'857'302'016},
      {"pythia-12b", 11'846'072'320},
      {"gpt-neox-20b", 20'554'567'680},
      {"gpt-j-6b", 6'050'882'784},
      {"falcon-7b", 6'921'720'704},
      {"falcon-40b", 41'303'293'952},
      {"falcon-180b", 179'522'565'120},
      {"opt-125m", 125'239'296},
      {"opt-350m", 331'196'416},
      {"opt-1.3b", 1'315'758'080},
      {"opt-2.7b", 2'651'596'800},
      {"opt-6.7b", 6'658'473'984},
      {"opt-13b", 12'853'473'280},
      {"opt-30b", 29'974'540'288},
      {"opt-66b", 65'719'701'504},
      {"bloom-560m", 559'214'592},
      {"bloom-1b1", 1'065'314'304},
      {"bloom-1b7", 1'722'408'960},
      {"bloom-3b", 3'002'557'440},
      {"bloom-7b1", 7'069'016'064},
      {"bloom-176b", 176'247'271'424},
      {"deepseek-v2-lite", 15'706'484'224},
      {"deepseek-v2", 235'741'434'880},
      {"deepseek-v3", 671'026'419'200},
      {"granite-3.1-2b", 2'533'531'648},
      {"granite-3.1-8b", 8'170'848'256},
      {"olmo-1b", 1'176'764'416},
      {"olmo-7b", 6'888'095'744},
      {"olmo-2-1b", 1'484'916'736},
      {"olmo-2-7b", 7'298'617'344},
      {"olmo-2-13b", 13'716'198'400},
      {"t5-small", 60'506'624},
      {"t5-base", 222'903'552},
      {"t5-large", 737'668'096},
      {"t5-3b", 2'851'598'336},
      {"t5-11b", 11'307'321'344},
      {"vit-base", 86'567'656},
      {"vit-large", 304'326'632},
      {"vit-huge", 632'045'800},
      {"lenet", 61'706},
      {"resnet-8", 77'850},
      {"stablelm-3b", 2'795'443'200},
      {"stablelm-2-1.6b", 1'644'515'328},
      {"stablelm-2-12b", 12'143'185'920},
      {"command-r", 34'980'831'232},
      {"command-r-plus", 103'810'674'688},
      {"starcoder2-3b", 3'030'371'328},
      {"starcoder2-7b", 7'173'923'840},
      {"starcoder2-15b", 15'957'889'024},
      {"qwen3-30b-a3b", 30'532'122'624},
      {"qwen3-235b-a22b", 235'093'634'560},
      {"olmo-3-7b", 7'298'011'136},
      {"olmo-3-32b", 32'233'522'176},
      {"smollm3-3b", 3'075'098'624},
      {"olmoe-1b-7b", 6'919'161'856},
      {"glm-4-9b-0414", 9'400'279'040},
      {"glm-4.5-air", 106'852'251'264},
      {"glm-4.5", 352'797'829'024},
      {"granite-3.0-1b-a400m", 1'334'628'352},
      {"command-r7b", 8'028'033'024},
      {"ernie-4.5-0.3b", 360'748'032},
      {"afm-4.5b", 4'619'184'640},
      {"minitron-4b", 4'190'509'056},
      {"exaone-4.0-1.2b", 1'279'391'488},
      {"exaone-4.0-32b", 32'003'216'384},
      {"seed-oss-36b", 36'151'104'512},
      {"modernbert-base", 149'655'232},
      {"modernbert-large", 395'881'664},
      {"distilbert-base", 66'985'530},
      {"electra-small", 13'546'682},
      {"electra-base", 109'514'298},
      {"gpt-neo-125m", 125'198'592},
      {"gpt-neo-1.3b", 1'315'575'808},
      {"gpt-neo-2.7b", 2'651'307'520},
      {"starcoderbase", 15'517'456'384},
      {"santacoder", 1'124'886'528},
      {"mpt-7b", 6'649'286'656},
      {"bart-base", 139'470'681},
      {"bart-large", 406'341'721},
      {"xlm-roberta-base", 278'295'186},
      {"xlm-roberta-large", 560'142'482},
      {"mt5-small", 300'176'768},
      {"mt5-base", 582'401'280},
      {"mt5-large", 1'229'581'312},
      {"mt5-xl", 3'742'619'648},
      {"gpt-oss-20b", 20'914'757'184},
      {"gpt-oss-120b", 116'829'156'672},
      {"apertus-8b", 8'053'338'240},  // with the two numbers of each layer that are not trained
      {"llama-4-scout", 107'769'861'120},
      {"dinov2-small", 22'058'114},
      {"dinov2-base", 86'583'554},
      {"dinov2-large", 304'372'738},
      {"dinov2-giant", 1'136'486'914},
      {"clip-vit-b-32-vision", 87'849'216},
      {"clip-vit-b-32-text", 63'428'096},
      {"clip-vit-l-14-vision", 303'966'208},
      {"clip-vit-l-14-text", 123'650'304},
      {"siglip-base-vision", 92'884'224},
      {"siglip-base-text", 110'271'744},
      {"albert-base-v2", 11'221'680},
      {"whisper-tiny", 37'760'640},
      {"whisper-base", 72'593'920},
      {"whisper-small", 241'734'912},
      {"whisper-medium", 763'857'920},
      {"whisper-large-v3", 1'543'490'560},
      {"whisper-large-v3-turbo", 808'878'080},
      {"mamba-130m", 129'135'360},
      {"mamba-370m", 371'516'416},
      {"mamba-790m", 793'204'224},
      {"mamba-1.4b", 1'372'178'432},
      {"mamba-2.8b", 2'768'345'600},
      {"mamba-codestral-7b", 7'285'403'648},
      {"mamba2-130m", 128'989'632},
      {"qwen1.5-moe-a2.7b", 14'315'784'192},
      {"mt5-xxl", 12'921'057'280},
  };
  return table;
}

TEST(Presets, HaveTheKnownNumberOfParameters) {
  for (const Preset& preset : presets()) {
    const std::string name(preset.name);
    ASSERT_TRUE(known().contains(name)) << name << " has no known number here";
    auto a = load_model(name);
    ASSERT_TRUE(a) << a.error().message;
    ASSERT_TRUE(resolve(*a)) << name;
    EXPECT_EQ(build_graph(*a).parameter_count(), known().at(name)) << name;
  }
  EXPECT_EQ(presets().size(), known().size());
}

TEST(Presets, CoverEveryFamily) {
  std::set<std::string> seen;
  for (const Preset& preset : presets()) seen.insert(load_model(std::string(preset.name))->family);
  for (const Family& family : families()) {
    // the multimodal name of a family that is there under its own
    const bool alias = family.model_type == "gemma3";
    EXPECT_TRUE(alias || seen.contains(std::string(family.model_type))) << family.model_type;
  }
  for (const FamilyFile& family : family_files()) EXPECT_TRUE(seen.contains(std::string(family.model_type))) << family.model_type;
}

}  // namespace
}  // namespace stepzero
