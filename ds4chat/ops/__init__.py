"""Operations of the model with one public function each."""
