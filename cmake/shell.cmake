# Writes the manual page and the completions that PROGRAM prints below OUT, where a share directory has them:
#   cmake -DPROGRAM=stepzero -DOUT=share -P cmake/shell.cmake
foreach(file IN ITEMS "man/man1/stepzero.1|manual" "bash-completion/completions/stepzero|completions|bash"
        "zsh/site-functions/_stepzero|completions|zsh" "fish/vendor_completions.d/stepzero.fish|completions|fish")
  string(REPLACE "|" ";" words "${file}")
  list(POP_FRONT words path)
  execute_process(COMMAND "${PROGRAM}" ${words} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE "${OUT}/${path}" "${text}")
endforeach()
